#pragma once
/** @file Choosing positions of an axis by number. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief y[.., k, ..] = x[.., indices[k], ..] along `axis`.
 *  @param[in] x any dtype, any strides
 *  @param[in] indices [count], i64 or i32, on x's device
 *  @throws Error for indices outside [0, extent of the axis) on the CPU. On CUDA, which the host
 *  does not wait for, such a position's values are NaN (0 for integers). */
Tensor index_select(const Tensor& x, int axis, const Tensor& indices);

/** @brief dx[.., i, ..] = sum of dy[.., k, ..] over the k with indices[k] = i, in an order that
 * does not depend on the number of threads. It is in f32 (f64 for f64). Indices outside [0, extent)
 * and equal to `skip` add nothing.
 *  @param[in] extent of `axis` in x */
Tensor index_select_backward(const Tensor& dy, int axis, const Tensor& indices, int64_t extent,
                             int64_t skip = -1);

/// x is [outer, extent, inner], y [outer, count, inner], both contiguous; errors name `op`. The
/// backward adds the sums to x, which is like dx and may be it; undefined, it stands for zeros.
BS_BACKENDS(void index_select(const Tensor& x, const Tensor& indices, const Tensor& y,
                              const char* op, Stream stream);
            void index_select_backward(const Tensor& x, const Tensor& dy, const Tensor& indices,
                                       const Tensor& dx, int64_t skip, Stream stream))

}  // namespace bs
