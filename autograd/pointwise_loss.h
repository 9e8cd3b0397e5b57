#pragma once
/** @file Differentiable losses element by element; see kernels/pointwise_loss.h. They save x and t.
 *  The first four have a gradient for t too. */
#include <bs/autograd/variable.h>
#include <bs/kernels/pointwise_loss.h>

namespace bs {

Variable mse_loss(const Variable& x, const Variable& t, Reduction reduction = Reduction::mean);
Variable l1_loss(const Variable& x, const Variable& t, Reduction reduction = Reduction::mean);
Variable huber_loss(const Variable& x, const Variable& t, double delta = 1,
                    Reduction reduction = Reduction::mean);
Variable smooth_l1_loss(const Variable& x, const Variable& t, double beta = 1,
                        Reduction reduction = Reduction::mean);
Variable binary_cross_entropy(const Variable& x, const Tensor& t,
                              Reduction reduction = Reduction::mean);
Variable binary_cross_entropy_with_logits(const Variable& x, const Tensor& t,
                                          const Tensor& positive_weight = {},
                                          Reduction reduction = Reduction::mean);
Variable kl_div(const Variable& x, const Tensor& t, Reduction reduction = Reduction::mean,
                bool log_target = false);
/** @brief sum(a b) / (max(|a|, eps) max(|b|, eps)) along `axis`; a and b broadcast. */
Variable cosine_similarity(const Variable& a, const Variable& b, int axis = -1, double eps = 1e-8);
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis = -1,
                                double eps = 1e-8) {
  return cosine_similarity(Variable(a), b, axis, eps).data();
}

}  // namespace bs
