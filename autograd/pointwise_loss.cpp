#include <bs/autograd/pointwise_loss.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/unary.h>

namespace bs {

namespace {

/// Records a loss whose gradients for x and t are opposite; `backward` gives that of x.
template <class Backward>
Variable record(const char* name, const Variable& x, const Variable& t, Tensor loss,
                Backward backward) {
  const bool to_x = x.requires_grad(), to_t = t.requires_grad();
  return tape().record(name, {x, t}, std::move(loss), [=](const Tensor& dloss) {
    const Tensor dx = backward(dloss);
    return Grads{to_x ? dx : Tensor(), to_t ? -dx : Tensor()};
  });
}

}  // namespace

Variable mse_loss(const Variable& x, const Variable& t, Reduction reduction) {
  return record("mse_loss", x, t, mse_loss(x.data(), t.data(), reduction),
                [x = SavedTensor(x.data()), t = SavedTensor(t.data()), reduction](
                    const Tensor& dloss) { return mse_loss_backward(x, t, dloss, reduction); });
}

Variable l1_loss(const Variable& x, const Variable& t, Reduction reduction) {
  return record("l1_loss", x, t, l1_loss(x.data(), t.data(), reduction),
                [x = SavedTensor(x.data()), t = SavedTensor(t.data()), reduction](
                    const Tensor& dloss) { return l1_loss_backward(x, t, dloss, reduction); });
}

Variable huber_loss(const Variable& x, const Variable& t, double delta, Reduction reduction) {
  return record(
      "huber_loss", x, t, huber_loss(x.data(), t.data(), delta, reduction),
      [x = SavedTensor(x.data()), t = SavedTensor(t.data()), delta, reduction](
          const Tensor& dloss) { return huber_loss_backward(x, t, dloss, delta, reduction); });
}

Variable smooth_l1_loss(const Variable& x, const Variable& t, double beta, Reduction reduction) {
  return record(
      "smooth_l1_loss", x, t, smooth_l1_loss(x.data(), t.data(), beta, reduction),
      [x = SavedTensor(x.data()), t = SavedTensor(t.data()), beta, reduction](const Tensor& dloss) {
        return smooth_l1_loss_backward(x, t, dloss, beta, reduction);
      });
}

Variable binary_cross_entropy(const Variable& x, const Tensor& t, Reduction reduction) {
  return tape().record(
      "binary_cross_entropy", {x}, binary_cross_entropy(x.data(), t, reduction),
      [x = SavedTensor(x.data()), t = SavedTensor(t), reduction](const Tensor& dloss) {
        return Grads{binary_cross_entropy_backward(x, t, dloss, reduction)};
      });
}

Variable binary_cross_entropy_with_logits(const Variable& x, const Tensor& t,
                                          const Tensor& positive_weight, Reduction reduction) {
  return tape().record("binary_cross_entropy_with_logits", {x},
                       binary_cross_entropy_with_logits(x.data(), t, positive_weight, reduction),
                       [x = SavedTensor(x.data()), t = SavedTensor(t), positive_weight,
                        reduction](const Tensor& dloss) {
                         return Grads{binary_cross_entropy_with_logits_backward(
                             x, t, positive_weight, dloss, reduction)};
                       });
}

Variable kl_div(const Variable& x, const Tensor& t, Reduction reduction, bool log_target) {
  return tape().record(
      "kl_div", {x}, kl_div(x.data(), t, reduction, log_target),
      [x = SavedTensor(x.data()), t = SavedTensor(t), reduction, log_target](const Tensor& dloss) {
        return Grads{kl_div_backward(x, t, dloss, reduction, log_target)};
      });
}

Variable cosine_similarity(const Variable& a, const Variable& b, int axis, double eps) {
  const Axes along = Dims{axis};
  const auto length = [&](const Variable& v) {  // eps under the root: no slope at a zero vector
    return sqrt(maximum(sum(v * v, along), eps * eps));
  };
  return sum(a * b, along) / (length(a) * length(b));
}

}  // namespace bs
