#pragma once
/** @file Sums of squares and products over axes, which vector_norm.h and scan.h show. */
#include <bs/kernels/reduce.h>

namespace bs {

/** @brief The sum of x^2 over `axes`, in the dtype of sums; x is floating. Errors name `op`. */
Tensor sum_of_squares(const char* op, const Tensor& x, const Axes& axes, bool keepdim);
/** @brief The product likewise; of i64 also, where it wraps around. */
Tensor wide_product(const char* op, const Tensor& x, const Axes& axes, bool keepdim);

/// Along the middle axis of dense x [outer, n, inner]; y [outer, inner] is in the dtype of sums.
BS_BACKENDS(void sum_of_squares(const Tensor& x, const Tensor& y, Stream stream);
            void product(const Tensor& x, const Tensor& y, Stream stream))

}  // namespace bs
