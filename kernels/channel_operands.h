#pragma once
/** @file How front doors of batch and group norm read what stands beside x [N, C, ...]. */
#include <bs/lib/tensor.h>

namespace bs::detail {

/** @brief The dtype of means and deviations. */
inline DType statistics_dtype(const Tensor& x) { return x.dtype() == f64 ? f64 : f32; }

/** @brief A vector of the channels in the dtype of statistics, dense; undefined where it is.
 *  @throws Error where its shape, dtype or device does not fit x */
Tensor channel_vector(const char* op, const char* name, const Tensor& x, const Tensor& vector);
/** @brief The same in the dtype that it has: x's or that of statistics. */
Tensor channel_weight(const char* op, const char* name, const Tensor& x, const Tensor& vector);
/** @brief The dtype in which sums are the gradients of both: theirs, if they have one. */
DType gradient_dtype(const Tensor& x, const Tensor& weight, const Tensor& bias);
/** @brief A tensor of x's kind in x's format; undefined where it is. @throws Error as above */
Tensor image_beside(const char* op, const Tensor& x, const Tensor& other);

}  // namespace bs::detail
