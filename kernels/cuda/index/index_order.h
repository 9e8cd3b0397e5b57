#pragma once
/** @file Positions in the order of their indices. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Positions by index; those of one index in their own order. Words of 32 bits. */
struct IndexOrder {
  Tensor keys;       ///< [count]: the indices in order; `extent` stands for what is left out
  Tensor positions;  ///< [count]
  Tensor begins;     ///< [extent + 1]: where indices of so much or more begin
};

/** @brief Of at least one index, i32 or i64, leaving out what lies outside of [0, extent) and
 *  `skip`. */
IndexOrder index_order(const Tensor& indices, int64_t extent, int64_t skip, Stream stream);

}  // namespace bs::cuda
