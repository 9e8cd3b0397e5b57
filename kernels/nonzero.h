#pragma once
/** @file Which elements are not zero, and those that a mask names. On CUDA these wait for the
 * device, since the size of the result depends on values. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief The positions in row-major order, [count] of i64, of the elements that are not zero; NaN
 *  is not zero. Any dtype and strides. */
Tensor flat_nonzero(const Tensor& x);
/** @brief Their coordinates [count, rank], i64, in that order. */
Tensor nonzero(const Tensor& x);
/** @brief The elements of x [count] whose mask is not zero. @throws Error unless the mask
 * broadcasts to x. */
Tensor masked_select(const Tensor& x, const Tensor& mask);
/** @brief The numbers of `indices` [...] as vectors [..., classes] with a single one. An index
 *  outside [0, classes) gives zeros. */
Tensor one_hot(const Tensor& indices, int64_t classes, DType dtype = i64);

/// Elements of a part, whose true ones are counted before the result can be allocated.
inline constexpr int64_t nonzero_part = 16384;

/// Of a dense bool x, whose bytes need not be 1. `before` [parts + 1] i64 becomes the number of
/// true elements in front of each part, and of all. `coordinates` [that number, rank of x] i64
/// become theirs; `values` [that number] those of a dense x whose `mask` is true.
BS_BACKENDS(void count_nonzero(const Tensor& x, const Tensor& before, Stream stream);
            void nonzero(const Tensor& x, const Tensor& before, const Tensor& coordinates,
                         Stream stream);
            void masked_select(const Tensor& x, const Tensor& mask, const Tensor& before,
                               const Tensor& values, Stream stream))
/// Dense indices [rows] of i64 or i32, y [rows, classes].
BS_BACKENDS(void one_hot(const Tensor& indices, const Tensor& y, Stream stream))

}  // namespace bs
