#pragma once
/** @file Differentiable activation functions; see kernels/activation.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/activation.h>

namespace bs {

/** @brief Saves its result. */
Variable tanh(const Variable& x);
/** @brief Saves its result. */
Variable sigmoid(const Variable& x);
/** @brief Saves its result. */
Variable relu(const Variable& x);
/** @brief Saves x. */
Variable gelu(const Variable& x, Gelu form = Gelu::erf);
/** @brief Saves x. */
Variable silu(const Variable& x);
/** @brief The one that `f` names; x itself for none. */
Variable activate(const Variable& x, Activation f);

}  // namespace bs
