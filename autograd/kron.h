#pragma once
/** @file Differentiable Kronecker products, and products with them; see kernels/kron.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/kron.h>

namespace bs {

/** @brief y = f(x (W_N kron ... kron W_1) + bias). Saves x and the factors, for an activation its
 *  argument or result, and what lies between passes if `keep_prefixes` says so. */
Variable kron_matmul(const Variable& x, const std::vector<Variable>& factors,
                     const Variable& bias = {}, const KronOptions& options = {});

/** @brief The dense Kronecker product of two matrices: [m p, n q] from [m, n] and [p, q]. Saves
 *  both; can be differentiated any number of times. */
Variable kron(const Variable& a, const Variable& b);

}  // namespace bs
