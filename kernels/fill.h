#pragma once
/** @file Tensors made from one value, or from a sequence. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief A new tensor with every element `value`, converted to `dtype`. */
Tensor full(const Shape& shape, double value, DType dtype = f32, Device device = Device::cpu());
/** @brief A new tensor of zeros. */
Tensor zeros(const Shape& shape, DType dtype = f32, Device device = Device::cpu());
/** @brief A new tensor of ones. */
Tensor ones(const Shape& shape, DType dtype = f32, Device device = Device::cpu());
inline Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }
/** @brief Sets every element of a contiguous tensor. */
void fill(const Tensor& x, double value);

BS_BACKENDS(void fill(const Tensor& x, double value, Stream stream))

}  // namespace bs
