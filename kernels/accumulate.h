#pragma once
/** @file total += part, in place: what sums of gradients are made of. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief Adds `part` to `total` in place.
 *  @param[in,out] total contiguous, any floating dtype
 *  @param[in] part contiguous, of the same shape, dtype and device; may overlap `total`
 *  @throws Error when shape, dtype, device or layout differ. */
void accumulate(const Tensor& total, const Tensor& part);

BS_BACKENDS(void accumulate(const Tensor& part, const Tensor& total, Stream stream))

}  // namespace bs
