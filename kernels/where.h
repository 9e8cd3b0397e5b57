#pragma once
/** @file Choosing between two operands element by element. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/operand.h>

namespace bs {

/** @brief y = condition ? a : b, all three broadcast together.
 *  @param[in] condition bool, or any dtype, where what is not zero is true
 *  @param[in] a, b tensors or numbers; y has their promoted dtype (see binary.h). Any strides.
 *  @throws Error when shapes do not broadcast, devices differ, or an integer beside i32 or u8 is
 *  beyond what i32 holds. */
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

BS_BACKENDS(void where(const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y,
                       Stream stream))

}  // namespace bs
