#pragma once
/** @file The differentiable product with a Kronecker product; see kernels/kron.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/kron.h>

namespace bs {

/** @brief y = f(x (W_N kron ... kron W_1) + bias). Saves x and the factors, for an activation its
 *  argument or result, and what lies between passes if `keep_prefixes` says so. */
Variable kron_matmul(const Variable& x, const std::vector<Variable>& factors,
                     const Variable& bias = {}, const KronOptions& options = {});

}  // namespace bs
