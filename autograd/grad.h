#pragma once
/** @file Gradients as a result, where backward() adds them to the variables. */
#include <bs/autograd/tape.h>

namespace bs {

/** @brief The gradient of one-element `output` for each of `inputs`, which may be leaves or results
 *  on the way. No variable's grad() changes; hooks run.
 *  @return contiguous, each with memory of its own; undefined for an input that `output` does not
 *    depend on
 *  @throws Error like Variable::backward, and for an input that requires no gradient. */
Grads grad(const Variable& output, std::span<const Variable> inputs, BackwardOptions options = {});
/** @brief The same for an output of any shape, starting from `gradient`. */
Grads grad(const Variable& output, std::span<const Variable> inputs, const Tensor& gradient,
           BackwardOptions options = {});
/** @brief grad(loss, {x, y}). */
inline Grads grad(const Variable& output, std::initializer_list<Variable> inputs,
                  BackwardOptions options = {}) {
  return grad(output, std::span(inputs.begin(), inputs.size()), options);
}

}  // namespace bs
