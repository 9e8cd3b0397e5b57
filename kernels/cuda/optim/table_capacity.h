#pragma once
/** @file How many tensors one launch of an optimiser takes: their addresses, sizes and chunks are
 *  an argument of the kernel, which may have 32 KiB. */
#include <bs/lib/integers.h>

#include <cstdint>

namespace bs::cuda {

/** @brief Groups of `depth` tensors in a table: a parameter, its gradient, its states and its
 *  weights in full precision. */
constexpr int table_capacity(int depth) {
  constexpr int bytes = 30000, of_a_tensor = 8, of_a_group = 12;
  return bytes / (of_a_tensor * depth + of_a_group);
}

/** @brief Depth of the table of an optimiser with so many states a parameter. */
constexpr int table_depth(int states) { return states + 3; }

/** @brief Tables, and launches of a kernel, for `groups` groups of one dtype. Their sizes do not
 *  matter. */
constexpr int64_t table_launches(int64_t groups, int depth) {
  return ceil_div(groups, int64_t{table_capacity(depth)});
}

}  // namespace bs::cuda
