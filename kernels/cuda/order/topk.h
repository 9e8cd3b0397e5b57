#pragma once
/** @file The first few of each row's order, or one of them, selected in place of a sort. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Whether the first k of rows of n elements of `dtype` are better selected. */
bool selects_first(DType dtype, int64_t n, int64_t k);
/** @brief The first k positions of each row's order to indices [rows, k], as argsort gives them. */
void select_first(const Tensor& x, const Tensor& indices, bool descending, Stream stream);

/** @brief Whether one number of the order of rows of n elements of `dtype` is better selected. */
bool selects_number(DType dtype, int64_t n);
/** @brief The position of number k, from 0 on, of each row's order to indices [rows, 1]. */
void select_number(const Tensor& x, const Tensor& indices, int64_t k, Stream stream);

}  // namespace bs::cuda
