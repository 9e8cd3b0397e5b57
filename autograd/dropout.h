#pragma once
/** @file Differentiable dropout; see kernels/dropout.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/activation.h>
#include <bs/lib/random.h>

namespace bs {

/** @brief Zeroes elements with probability p and scales the others by 1 / (1 - p). Saves a seed and
 *  an offset, no mask. With p = 0 it is x itself and draws nothing. */
Variable dropout(const Variable& x, double p, Generator& generator = default_generator());
/** @brief The same of whole channels of x [N, C, ...]. */
Variable dropout2d(const Variable& x, double p, Generator& generator = default_generator());

/** @brief dropout(f(x), p). Saves x, or of relu the result; with p = 0 it is f(x) and draws
 * nothing.
 *  @param[in] f relu, gelu or gelu_tanh */
Variable activation_dropout(const Variable& x, Activation f, double p,
                            Generator& generator = default_generator());

}  // namespace bs
