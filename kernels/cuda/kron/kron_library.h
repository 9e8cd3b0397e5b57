#pragma once
/** @file One axis of kron_matmul by dense products of the vendor's library, for a factor that is
 * too large for the chip. The arguments are those of kron_pass and kron_pass_backward. */
#include <bs/kernels/kron.h>

namespace bs::cuda {

/** @brief y = x with the factor applied, without bias and activation. */
void kron_library_step(const Tensor& x, const Tensor& factor, const Tensor& y, Stream stream);
/** @brief Bias, then the activation, in place; its argument goes to `before` if that is defined. */
void kron_library_finish(const Tensor& bias, Activation activation, const Tensor& before,
                         const Tensor& y, Stream stream);
/** @brief The factor's gradient. */
void kron_library_contract(const Tensor& x, const Tensor& dy, const Tensor& dfactor, Stream stream);

}  // namespace bs::cuda
