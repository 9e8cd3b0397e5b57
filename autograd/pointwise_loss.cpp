#include <bs/autograd/pointwise_loss.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/rectifier.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/where.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/unary.h>

namespace bs {

namespace {

/// Losses of single elements, in the dtype that losses have.
Variable wide(const Variable& x) { return cast(x, x.dtype() == f64 ? f64 : f32); }

Variable reduced(const Variable& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

/// Records a loss of x - t: `backward` gives the gradient for x, that for t is opposite; `losses`
/// defines the loss of each difference.
template <class Backward, class Losses>
Variable record_of_difference(const char* name, const Variable& x, const Variable& t, Tensor loss,
                              Reduction reduction, Backward backward, Losses losses) {
  const SavedTensor p(x.data()), q(t.data());
  const bool to_x = x.requires_grad(), to_t = t.requires_grad();
  return tape().record(name, {x, t}, std::move(loss),
                       Twice{[=](const Tensor& dloss) {
                               const Tensor dx = backward(p.get(), q.get(), dloss);
                               return Grads{to_x ? dx : Tensor(), to_t ? -dx : Tensor()};
                             },
                             [=](const Recorded& r) {
                               return by_definition(r, [&](std::span<const Variable> in) {
                                 const Variable a = in[0].defined() ? in[0] : Variable(p.get());
                                 const Variable b = in[1].defined() ? in[1] : Variable(q.get());
                                 return reduced(losses(wide(a) - wide(b)), reduction);
                               });
                             }});
}

/// Records a loss of x, where targets get no gradient; `losses` defines those of the elements.
template <class Backward, class Losses>
Variable record_of(const char* name, const Variable& x, Tensor loss, Reduction reduction,
                   Backward backward, Losses losses) {
  return tape().record(name, {x}, std::move(loss),
                       Twice{[p = SavedTensor(x.data()), backward](const Tensor& dloss) {
                               return Grads{backward(p.get(), dloss)};
                             },
                             [losses, reduction](const Recorded& r) {
                               return by_definition(r, [&](std::span<const Variable> in) {
                                 return reduced(losses(wide(in[0])), reduction);
                               });
                             }});
}

/// d^2 / 2 up to |d| = delta, then straight on.
Variable huber_of(const Variable& d, double delta) {
  const Variable size = abs(d);
  return where(le(size.data(), delta), d * d * 0.5, (size - 0.5 * delta) * delta);
}

Tensor wide_target(const Tensor& t, const Variable& x) { return cast(t, x.dtype()); }

}  // namespace

Variable mse_loss(const Variable& x, const Variable& t, Reduction reduction) {
  return record_of_difference(
      "mse_loss", x, t, mse_loss(x.data(), t.data(), reduction), reduction,
      [reduction](const Tensor& p, const Tensor& q, const Tensor& dloss) {
        return mse_loss_backward(p, q, dloss, reduction);
      },
      [](const Variable& d) { return d * d; });
}

Variable l1_loss(const Variable& x, const Variable& t, Reduction reduction) {
  return record_of_difference(
      "l1_loss", x, t, l1_loss(x.data(), t.data(), reduction), reduction,
      [reduction](const Tensor& p, const Tensor& q, const Tensor& dloss) {
        return l1_loss_backward(p, q, dloss, reduction);
      },
      [](const Variable& d) { return abs(d); });
}

Variable huber_loss(const Variable& x, const Variable& t, double delta, Reduction reduction) {
  return record_of_difference(
      "huber_loss", x, t, huber_loss(x.data(), t.data(), delta, reduction), reduction,
      [delta, reduction](const Tensor& p, const Tensor& q, const Tensor& dloss) {
        return huber_loss_backward(p, q, dloss, delta, reduction);
      },
      [delta](const Variable& d) { return huber_of(d, delta); });
}

Variable smooth_l1_loss(const Variable& x, const Variable& t, double beta, Reduction reduction) {
  return record_of_difference(
      "smooth_l1_loss", x, t, smooth_l1_loss(x.data(), t.data(), beta, reduction), reduction,
      [beta, reduction](const Tensor& p, const Tensor& q, const Tensor& dloss) {
        return smooth_l1_loss_backward(p, q, dloss, beta, reduction);
      },
      [beta](const Variable& d) { return beta == 0 ? abs(d) : huber_of(d, beta) / beta; });
}

Variable binary_cross_entropy(const Variable& x, const Tensor& t, Reduction reduction) {
  const SavedTensor target(t);
  return record_of(
      "binary_cross_entropy", x, binary_cross_entropy(x.data(), t, reduction), reduction,
      [target, reduction](const Tensor& p, const Tensor& dloss) {
        return binary_cross_entropy_backward(p, target, dloss, reduction);
      },
      [target](const Variable& p) {
        const Tensor q = wide_target(target, p);
        return -(log(p) * q + log(1 - p) * (1 - q));
      });
}

Variable binary_cross_entropy_with_logits(const Variable& x, const Tensor& t,
                                          const Tensor& positive_weight, Reduction reduction) {
  const SavedTensor target(t), weight(positive_weight);
  const Tensor loss = binary_cross_entropy_with_logits(x.data(), t, positive_weight, reduction);
  return record_of(
      "binary_cross_entropy_with_logits", x, loss, reduction,
      [target, weight, reduction](const Tensor& p, const Tensor& dloss) {
        return binary_cross_entropy_with_logits_backward(p, target, weight, dloss, reduction);
      },
      [target, weight](const Variable& p) {
        const Tensor q = wide_target(target, p);
        if (!weight.defined()) return softplus(p) - p * q;
        return softplus(p) * (1 - q) + softplus(-p) * (q * wide_target(weight, p));
      });
}

Variable kl_div(const Variable& x, const Tensor& t, Reduction reduction, bool log_target) {
  const SavedTensor target(t);
  return record_of(
      "kl_div", x, kl_div(x.data(), t, reduction, log_target), reduction,
      [target, reduction, log_target](const Tensor& p, const Tensor& dloss) {
        return kl_div_backward(p, target, dloss, reduction, log_target);
      },
      [target, log_target](const Variable& p) {
        const Tensor q = wide_target(target, p);
        return p * -(log_target ? exp(q) : q);  // and what does not depend on x
      });
}

Variable cosine_similarity(const Variable& a, const Variable& b, int axis, double eps) {
  const DType dtype = common("cosine_similarity", a.data(), b.data()).dtype;
  const DType summed = dtype == f64 ? f64 : f32;  // neither squares nor eps^2 fit f16
  const Variable u = cast(a, summed), v = cast(b, summed);
  const Axes along = Dims{axis};
  const auto length = [&](const Variable& w) {  // eps under the root: no slope at a zero vector
    return sqrt(maximum(sum(w * w, along), eps * eps));
  };
  return cast(sum(u * v, along) / (length(u) * length(v)), is_floating(dtype) ? dtype : f32);
}

}  // namespace bs
