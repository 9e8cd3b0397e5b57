#pragma once
/** @file Further kinds of reductions over axes, which vector_norm.h, scan.h, sort.h and logic.h
 *  show. Errors name `op`. */
#include <bs/kernels/reduce.h>

namespace bs {

/** @brief `scale` times the sum over `axes`, in the dtype of sums. */
Tensor wide_sum(const char* op, const Tensor& x, const Axes& axes, bool keepdim, double scale);
/** @brief The square root of the sum of x^2 over `axes`, in x's floating dtype. */
Tensor root_of_squares(const char* op, const Tensor& x, const Axes& axes, bool keepdim);
/** @brief The product in the dtype of sums; of i64 also, where it wraps around. */
Tensor wide_product(const char* op, const Tensor& x, const Axes& axes, bool keepdim);
/** @brief Where the first of the largest elements is, or of the smallest; i64. */
Tensor place_of_extremum(const char* op, const Tensor& x, const Axes& axes, bool keepdim,
                         bool smallest);
/** @brief Whether one of these bools is true; bool. */
Tensor any_true(const char* op, const Tensor& x, const Axes& axes, bool keepdim);
/** @brief Whether each is. */
Tensor all_true(const char* op, const Tensor& x, const Axes& axes, bool keepdim);

/// Along the middle axis of dense x [outer, n, inner]. y [outer, inner] of product and
/// count_equal is in the dtype of sums; that of variance and root_of_squares, and of log_sum_exp,
/// may be of 16 bits. variance is `scale` times the sum of squared distances from the mean, or its
/// root. argmin gives i64, any_true and all_true take and give bools. Values at places are in x's
/// dtype, of bytes i64.
BS_BACKENDS(
    void variance(const Tensor& x, const Tensor& y, double scale, bool is_root, Stream stream);
    /// The same along the first and the last axis of x [parts, results, n]; y [results].
    void variance_of_parts(const Tensor& x, const Tensor& y, double scale, bool is_root,
                           Stream stream);
    void root_of_squares(const Tensor& x, const Tensor& y, Stream stream);
    /// How many equal the number that `to` [outer, inner], of x's dtype, names.
    void count_equal(const Tensor& x, const Tensor& to, const Tensor& y, Stream stream);
    void product(const Tensor& x, const Tensor& y, Stream stream);
    void argmin(const Tensor& x, const Tensor& y, Stream stream);
    void max_with_place(const Tensor& x, const Tensor& values, const Tensor& places, Stream stream);
    void min_with_place(const Tensor& x, const Tensor& values, const Tensor& places, Stream stream);
    void any_true(const Tensor& x, const Tensor& y, Stream stream);
    void all_true(const Tensor& x, const Tensor& y, Stream stream))

}  // namespace bs
