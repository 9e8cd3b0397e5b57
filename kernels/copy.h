#pragma once
/** @file Copies between layouts and dtypes. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief Copies `from` into `to`, element by element, converting the dtype; any strides. Where
 * they overlap, `to` gets what `from` was before.
 *  @throws Error when shapes or devices differ, or `to` names an element twice. */
void copy(const Tensor& from, const Tensor& to);
/** @brief A new contiguous tensor with the elements of `x`. */
Tensor clone(const Tensor& x);
/** @brief `x` itself when it is dense in row-major order, else a dense copy. */
Tensor contiguous(const Tensor& x);
/** @brief `x` as element-wise kernels take it: on a GPU any view, read where it lies; on the CPU
 * dense. */
Tensor elementwise_operand(const Tensor& x);
/** @brief `x` itself when it has `dtype` already, else a dense copy converted to it. Values out of
 *  an integer type's range are undefined, as in C++; floats round to nearest even. */
Tensor cast(const Tensor& x, DType dtype);
/** @brief The same elements under another shape: a view where strides allow it, else a copy. */
Tensor reshape(const Tensor& x, const Shape& shape);
/** @brief Moves to another device, densely. */
Tensor to(const Tensor& x, Device device);

BS_BACKENDS(void copy(const Tensor& from, const Tensor& to, Stream stream))

}  // namespace bs
