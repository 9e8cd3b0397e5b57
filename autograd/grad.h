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

/** @brief The gradients of a sum over several outputs, in one walk. Each starts from its element of
 *  `gradients`, or from 1, without which it must be a single number.
 *  @param[in] gradients empty, or one for each output; an undefined one stands for 1
 *  @throws Error like the others, for no outputs, and for another number of gradients. */
Grads grad(std::span<const Variable> outputs, std::span<const Variable> inputs,
           std::span<const Tensor> gradients = {}, BackwardOptions options = {});
/** @brief grad({loss, other}, {x, y}). */
inline Grads grad(std::initializer_list<Variable> outputs, std::initializer_list<Variable> inputs,
                  std::initializer_list<Tensor> gradients = {}, BackwardOptions options = {}) {
  return grad(std::span(outputs.begin(), outputs.size()), std::span(inputs.begin(), inputs.size()),
              std::span(gradients.begin(), gradients.size()), options);
}

/** @brief The gradients as variables, which are recorded themselves: functions of the inputs that
 *  have derivatives in turn, of any order. For penalties of gradients, Hessians times vectors and
 *  meta-learning; PyTorch's `create_graph=True`.
 *  @code
 *  const Variable slope = differentiable_grad(sum(f(x)), x);
 *  (loss(f(x)) + mean(slope * slope)).backward();
 *  @endcode
 *  The graph stays. Recorded are the backwards of elementwise functions, products of matrices and
 *  blocks, convolutions, pooling, reductions, order, norms and softmax. So are those of views,
 *  selections by number, embeddings, dropout and losses over elements and classes.
 *  @return undefined for an input that no output depends on
 *  @param[in] gradients where to start, as for grad(); may require gradients themselves
 *  @throws Error like grad(), where an operation between has no recorded backward, or where a
 *  tensor that it needs was changed in place. */
VariableGrads differentiable_grad(std::span<const Variable> outputs,
                                  std::span<const Variable> inputs,
                                  std::span<const Variable> gradients = {});
inline VariableGrads differentiable_grad(std::initializer_list<Variable> outputs,
                                         std::initializer_list<Variable> inputs,
                                         std::initializer_list<Variable> gradients = {}) {
  return differentiable_grad(std::span(outputs.begin(), outputs.size()),
                             std::span(inputs.begin(), inputs.size()),
                             std::span(gradients.begin(), gradients.size()));
}
/** @brief The same of one output for one input. */
inline Variable differentiable_grad(const Variable& output, const Variable& input) {
  return differentiable_grad({output}, {input}).front();
}

}  // namespace bs
