#pragma once
/** @file The second half of an epilogue's reductions: partial results of tiles to one number each.
 */
#include <bs/kernels/gemm_operation.h>

namespace bs::cuda {

/** @brief out[batch, i] = sum or maximum over `parts` of partial, in their order.
 *  @param[in] partial f32 or f64, [batch, parts, length]
 *  @param[out] out of its dtype, [batch, length] */
void gemm_reduce(const Tensor& partial, const Tensor& out, bool is_max, Stream stream);

}  // namespace bs::cuda
