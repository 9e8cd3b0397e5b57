#pragma once
/** @file Whether a dense operand holds an infinity or NaN, which absent blocks must keep out. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

#include <cstdint>

namespace bs::cuda {

/** @brief Writes `mark` to *to on the device if any number of a matrix is infinite or NaN.
 *  Cost: reading the matrix once.
 *  @param[in] x f16, bf16 or f32; one of its two strides is 1, or one of its extents */
void find_not_finite(const Tensor& x, int32_t mark, int32_t* to, Stream stream);

}  // namespace bs::cuda
