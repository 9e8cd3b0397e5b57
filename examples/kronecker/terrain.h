#pragma once
/** @file A map of heights, filled in by a Gaussian process on a grid. */
#include <bs/examples/kronecker/options.h>

namespace bs::example {

/** @brief Learns a process from every `spacing`-th row and column of a map, predicts the rest, and
 *  compares with linear interpolation and with a process without the Kronecker structure.
 *  @throws Error when the map is no matrix of numbers, or too small */
void fit_terrain(const KroneckerOptions& options);
/** @brief The same on hills made up here, and that it predicts better than interpolation. */
void smoke_terrain(const KroneckerOptions& options);

}  // namespace bs::example
