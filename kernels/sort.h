#pragma once
/** @file Order: sorting, the largest and smallest elements, and what occurs how often.
 *
 *  Any dtype and strides. Equal elements keep their order, so results are the same on both devices;
 *  NaN is larger than everything, and -0 equals 0. Positions are i64. */
#include <bs/kernels/bincount.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/unique.h>

namespace bs {

/** @brief Elements, and where along their axis they come from. */
struct Indexed {
  Tensor values, indices;
};

/** @brief The elements of each row along `axis` in order. */
Indexed sort(const Tensor& x, int axis = -1, bool descending = false);
/** @brief The positions that sort gives. */
Tensor argsort(const Tensor& x, int axis = -1, bool descending = false);
/** @brief The k largest (or smallest) elements of each row, in order.
 *  @throws Error unless 0 <= k <= extent of the axis. */
Indexed topk(const Tensor& x, int64_t k, int axis = -1, bool largest = true);
/** @brief The k-th smallest element of each row, k counting from 1. */
Indexed kthvalue(const Tensor& x, int64_t k, int axis = -1, bool keepdim = false);
/** @brief The largest element of each row, and its first position. @throws Error over nothing. */
Indexed max(const Tensor& x, int axis, bool keepdim = false);
/** @brief The smallest element of each row, and its first position; NaN if there is one. */
Indexed min(const Tensor& x, int axis, bool keepdim = false);
/** @brief The position of the first smallest element; over several axes the last counts fastest. */
Tensor argmin(const Tensor& x, const Axes& axes, bool keepdim = false);
template <AxisNumber I>
Tensor argmin(const Tensor& x, I axis, bool keepdim = false) {
  return argmin(x, one_axis(axis), keepdim);
}
/** @brief Along the last axis. */
inline Tensor argmin(const Tensor& x) { return argmin(x, -1); }

/** @brief dx of sort, topk, kthvalue, max and min: dy at the positions, zero elsewhere.
 *  @param[in] shape of x; dy and indices with `axis` in place */
Tensor sort_backward(const Tensor& dy, const Tensor& indices, const Shape& shape, int axis);

/// Of dense x [rows, n] positions in each row's order, i64: the first k to indices [rows, k], and
/// the k-th smallest to indices [rows, 1].
BS_BACKENDS(void argsort(const Tensor& x, const Tensor& indices, bool descending, Stream stream);
            void kthvalue(const Tensor& x, const Tensor& indices, int64_t k, Stream stream))

}  // namespace bs
