#pragma once
/** @file The program tests itself. */
#include <bs/examples/image_classifier/options.h>

namespace bs::example {

/** @brief Trains a tiny network on figures it draws itself, in a temporary folder, and checks that
 * it gets better than a linear model, and that a run that stops half-way and goes on ends in the
 * same bytes.
 *  @param[in] options device and dtype are taken from here
 *  @throws Error telling what did not hold */
void smoke(const Options& options);

}  // namespace bs::example
