#pragma once
/** @file Numbers as the sums of two that the tensor cores multiply exactly. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Splits f32 into a large and a small tf32 number each, whose sum is right to 22 bits.
 *  Moves 12 bytes an element.
 *  @param[in] from [batch, side, depth], either of the last two contiguous
 *  @param[out] to [batch, 2, side, ld] dense, the large ones first; `ld` is a multiple of 4, and at
 *  least the depth. What is beyond the depth is left alone. */
void gemm_split(const Tensor& from, float* to, int64_t ld, Stream stream);

}  // namespace bs::cuda
