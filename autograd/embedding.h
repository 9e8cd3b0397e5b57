#pragma once
/** @file Differentiable look-up; see kernels/embedding.h. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief Rows of weight [rows, width] at indices [...]; the row `padding_index` (-1: none) gets no
 *  gradient. Saves the indices.
 *  @throws Error as the kernel does, and for a padding_index that is no row. */
Variable embedding(const Variable& weight, const Tensor& indices, int64_t padding_index = -1);

}  // namespace bs
