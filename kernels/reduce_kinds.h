#pragma once
/** @file Further kinds of reductions over axes, which vector_norm.h, scan.h, sort.h and logic.h
 *  show. Errors name `op`. */
#include <bs/kernels/reduce.h>

namespace bs {

/** @brief `scale` times the sum over `axes`, in the dtype of sums. */
Tensor wide_sum(const char* op, const Tensor& x, const Axes& axes, bool keepdim, double scale);
/** @brief The sum of x^2 over `axes`, in the dtype of sums; x is floating. */
Tensor sum_of_squares(const char* op, const Tensor& x, const Axes& axes, bool keepdim);
/** @brief The product likewise; of i64 also, where it wraps around. */
Tensor wide_product(const char* op, const Tensor& x, const Axes& axes, bool keepdim);
/** @brief Where the first of the largest elements is, or of the smallest; i64. */
Tensor place_of_extremum(const char* op, const Tensor& x, const Axes& axes, bool keepdim,
                         bool smallest);
/** @brief Whether one of these bools is true; bool. */
Tensor any_true(const char* op, const Tensor& x, const Axes& axes, bool keepdim);
/** @brief Whether each is. */
Tensor all_true(const char* op, const Tensor& x, const Axes& axes, bool keepdim);

/// Along the middle axis of dense x [outer, n, inner]. y [outer, inner] of the first three is in
/// the dtype of sums; argmin gives i64, the others take and give bools.
BS_BACKENDS(void sum_of_squares(const Tensor& x, const Tensor& y, Stream stream);
            /// How many equal the number that `to` [outer, inner], of x's dtype, names.
            void count_equal(const Tensor& x, const Tensor& to, const Tensor& y, Stream stream);
            void product(const Tensor& x, const Tensor& y, Stream stream);
            void argmin(const Tensor& x, const Tensor& y, Stream stream);
            void any_true(const Tensor& x, const Tensor& y, Stream stream);
            void all_true(const Tensor& x, const Tensor& y, Stream stream))

}  // namespace bs
