#pragma once
/** @file Differentiable cross entropy with soft targets and weights of classes; see
 *  kernels/soft_cross_entropy.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/loss.h>

namespace bs {

/** @brief Cross entropy against class probabilities of logits' shape. Of the options, only the
 *  smoothing and the reduction count; the mean is over rows. Saves both.
 *  @throws Error for probabilities that are not floating: class numbers go to cross_entropy. */
Variable soft_cross_entropy(const Variable& logits, const Tensor& probabilities,
                            const CrossEntropyOptions& options = {});
/** @brief cross_entropy in which each class has a weight [v]; the mean divides by the sum of the
 *  targets' weights, as in PyTorch. Keeps a matrix of logits' shape. */
Variable weighted_cross_entropy(const Variable& logits, const Tensor& targets,
                                const Tensor& class_weights,
                                const CrossEntropyOptions& options = {});
/** @brief Minus the log-probability [..., v] of each target [...], optionally times its class
 * weight. The mean divides by the sum of these weights. Targets outside [0, v) other than
 * ignore_index throw on the CPU; on CUDA they give NaN. */
Variable nll_loss(const Variable& log_probabilities, const Tensor& targets,
                  const Tensor& class_weights = {}, const CrossEntropyOptions& options = {});

/** @name Of a Tensor, a Tensor
 *  @{ */
inline Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& targets,
                                     const Tensor& class_weights,
                                     const CrossEntropyOptions& options = {}) {
  return weighted_cross_entropy(Variable(logits), targets, class_weights, options).data();
}
inline Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets,
                       const Tensor& class_weights = {}, const CrossEntropyOptions& options = {}) {
  return nll_loss(Variable(log_probabilities), targets, class_weights, options).data();
}
/** @} */

}  // namespace bs
