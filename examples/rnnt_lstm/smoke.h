#pragma once
/** @file The program tests itself. */
#include <bs/examples/rnnt_lstm/options.h>

namespace bs::example {

/** @brief Trains a tiny model to read sounds it makes up, a tone for each letter, and checks that
 * it reads texts it has never heard, that a run that stops half-way and goes on ends in the same
 *  bytes, and that a recording in pieces gives the text of the whole.
 *  @param[in] options device and dtype are taken from here
 *  @throws Error telling what did not hold */
void smoke(const Options& options);

}  // namespace bs::example
