#pragma once
/** @file Numbers as the sums of two that the tensor cores multiply exactly. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief What is split, and to where. */
struct GemmSplit {
  Tensor from;          ///< [batch, side, depth], either of the last two contiguous
  float* to = nullptr;  ///< [batch, 2, side, ld] dense, the large ones first
  int64_t ld = 0;       ///< a multiple of 4, and at least the depth; what is beyond is left alone
};

/** @brief Splits f32 into a large and a small tf32 number each, whose sum is right to 22 bits: both
 *  operands of a product in one launch. Moves 12 bytes an element. */
void gemm_split(const GemmSplit& a, const GemmSplit& b, Stream stream);

}  // namespace bs::cuda
