#pragma once
/** @file The program tests itself. */
#include <bs/examples/sparse_transformer/options.h>

namespace bs::example {

/** @brief Trains a tiny model on a text it makes up, in a temporary folder, and checks that it gets
 *  well below a bigram model, and that a run that stops half-way and goes on ends in the same
 * bytes.
 *  @param[in] options device and dtype are taken from here
 *  @throws Error telling what did not hold */
void smoke(const Options& options);

}  // namespace bs::example
