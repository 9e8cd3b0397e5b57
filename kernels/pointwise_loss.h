#pragma once
/** @file Losses of a prediction x beside a target t, element by element.
 *
 *  x and t are floating and of one shape and dtype; any strides. Losses are f32 (f64 for f64), of
 *  x's shape for Reduction::none, else their mean or sum; the mean of nothing is NaN. Fused: one
 *  read of both, also where they are added up, and backward one read more. @throws Error when x and
 * t do not match. */
#include <bs/kernels/loss.h>

namespace bs {

/** @brief (x - t)^2. */
Tensor mse_loss(const Tensor& x, const Tensor& t, Reduction reduction = Reduction::mean);
/** @brief |x - t|. */
Tensor l1_loss(const Tensor& x, const Tensor& t, Reduction reduction = Reduction::mean);
/** @brief (x - t)^2 / 2 where |x - t| < delta, else delta (|x - t| - delta / 2).
 *  @throws Error unless delta > 0. */
Tensor huber_loss(const Tensor& x, const Tensor& t, double delta = 1,
                  Reduction reduction = Reduction::mean);
/** @brief huber_loss / beta, and l1_loss for beta = 0. @throws Error unless beta >= 0. */
Tensor smooth_l1_loss(const Tensor& x, const Tensor& t, double beta = 1,
                      Reduction reduction = Reduction::mean);
/** @brief -t log x - (1 - t) log(1 - x) for probabilities x; a logarithm is -100 at least. An x
 *  outside [0, 1] gives NaN. */
Tensor binary_cross_entropy(const Tensor& x, const Tensor& t,
                            Reduction reduction = Reduction::mean);
/** @brief The same of sigmoid(x), which neither overflows nor loses digits.
 *  @param[in] positive_weight undefined, or what broadcasts to x: factor of the first term */
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t,
                                        const Tensor& positive_weight = {},
                                        Reduction reduction = Reduction::mean);
/** @brief t (log t - x) for log-probabilities x and probabilities t, 0 where t is 0; for t of
 *  logarithms (`log_target`) e^t (t - x). The divergence of a batch is the sum over its rows. */
Tensor kl_div(const Tensor& x, const Tensor& t, Reduction reduction = Reduction::mean,
              bool log_target = false);

/** @name Vector-Jacobian products for x
 *  dloss has the loss' shape and dtype. The gradient for t of the first four is the opposite.
 *  @{ */
Tensor mse_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dloss,
                         Reduction reduction);
Tensor l1_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dloss, Reduction reduction);
Tensor huber_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dloss, double delta,
                           Reduction reduction);
Tensor smooth_l1_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dloss, double beta,
                               Reduction reduction);
Tensor binary_cross_entropy_backward(const Tensor& x, const Tensor& t, const Tensor& dloss,
                                     Reduction reduction);
Tensor binary_cross_entropy_with_logits_backward(const Tensor& x, const Tensor& t,
                                                 const Tensor& positive_weight, const Tensor& dloss,
                                                 Reduction reduction);
Tensor kl_div_backward(const Tensor& x, const Tensor& t, const Tensor& dloss, Reduction reduction,
                       bool log_target);
/** @} */

/// Where losses go: each to y, of x's shape. Or where `part` is not 0 sums of them, one for each so
/// many, times scale, to y [parts]; which losses a sum is of is up to the backend.
struct Losses {
  Tensor y;
  int64_t part = 0;
  double scale = 1;
};
/// Dense x and t, not empty; dy of x's shape with any strides, in the losses' dtype; dx is times
/// scale.
BS_BACKENDS(void mse_loss(const Tensor& x, const Tensor& t, const Losses& to, Stream stream);
            void mse_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                   const Tensor& dx, double scale, Stream stream);
            void l1_loss(const Tensor& x, const Tensor& t, const Losses& to, Stream stream);
            void l1_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                  const Tensor& dx, double scale, Stream stream);
            void huber_loss(const Tensor& x, const Tensor& t, const Losses& to, double delta,
                            double factor, Stream stream);
            void huber_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                     const Tensor& dx, double delta, double scale, Stream stream);
            void binary_cross_entropy(const Tensor& x, const Tensor& t, const Losses& to,
                                      Stream stream);
            void binary_cross_entropy_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                               const Tensor& dx, double scale, Stream stream);
            void binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t,
                                                  const Losses& to, Stream stream);
            void binary_cross_entropy_with_logits_backward(const Tensor& x, const Tensor& t,
                                                           const Tensor& dy, const Tensor& dx,
                                                           double scale, Stream stream);
            void kl_div(const Tensor& x, const Tensor& t, const Losses& to, bool log_target,
                        Stream stream);
            void kl_div_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                 const Tensor& dx, bool log_target, double scale, Stream stream))

}  // namespace bs
