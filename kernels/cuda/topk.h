#pragma once
/** @file The first few of each row's order, selected in place of a sort. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Whether the first k of rows of n elements of `dtype` are better selected. */
bool selects_first(DType dtype, int64_t n, int64_t k);
/** @brief The first k positions of each row's order to indices [rows, k], as argsort gives them. */
void select_first(const Tensor& x, const Tensor& indices, bool descending, Stream stream);

}  // namespace bs::cuda
