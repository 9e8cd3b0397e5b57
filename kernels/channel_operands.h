#pragma once
/** @file How front doors of batch and group norm read what stands beside x [N, C, ...]. */
#include <bs/lib/tensor.h>

namespace bs::detail {

/** @brief The dtype of means, of deviations, and of weights as kernels read them. */
inline DType statistics_dtype(const Tensor& x) { return x.dtype() == f64 ? f64 : f32; }

/** @brief A vector of the channels in the dtype of statistics, dense; undefined where it is.
 *  @throws Error where its shape, dtype or device does not fit x */
Tensor channel_vector(const char* op, const char* name, const Tensor& x, const Tensor& vector);
/** @brief A tensor of x's kind in x's format; undefined where it is. @throws Error as above */
Tensor image_beside(const char* op, const Tensor& x, const Tensor& other);

}  // namespace bs::detail
