#include <bs/kernels/pointwise_loss.h>

#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/rectifier.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/unary.h>
#include <bs/lib/integers.h>

namespace bs {

namespace {

DType loss_dtype(DType dtype) { return dtype == f64 ? f64 : f32; }

void check(const char* op, const Tensor& x, const Tensor& t) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  check_alike(op, x, t);
}

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

/// The losses of all elements, or what they come to, by twin(x, t, Losses).
template <class Twin>
Tensor loss_by(const char* op, const Tensor& x, const Tensor& t, Reduction reduction, Twin twin) {
  check(op, x, t);
  const DType dtype = loss_dtype(x.dtype());
  const int64_t n = x.numel();
  if (reduction == Reduction::none || n == 0) {
    const Tensor losses = Tensor::empty(x.shape(), dtype, x.device());
    if (n > 0) twin(contiguous(x), contiguous(t), Losses{losses});
    return reduced(losses, reduction);
  }
  // About as many parts as blocks of threads live on a large GPU at a time.
  const int64_t part = round_up(ceil_div(n, 1024), 2048);
  const Tensor sums = Tensor::empty({ceil_div(n, part)}, dtype, x.device());
  const double scale = reduction == Reduction::mean ? 1 / static_cast<double>(n) : 1;
  twin(contiguous(x), contiguous(t), Losses{sums, part, scale});
  return sums.numel() == 1 ? sums.view({}) : sum(sums);
}

/// dx by twin(x, t, dy, dx, scale), dy being of x's shape.
template <class Twin>
Tensor backward(const char* op, const Tensor& x, const Tensor& t, const Tensor& dloss,
                Reduction reduction, Twin twin) {
  check(op, x, t);
  const Shape expected = reduction == Reduction::none ? x.shape() : Shape();
  BS_CHECK(dloss.shape() == expected, "{}: dloss of shape {} for a loss of shape {}", op,
           dloss.shape(), expected);
  Tensor dx = Tensor::empty_like(x);
  const double n = reduction == Reduction::mean ? static_cast<double>(x.numel()) : 1;
  if (x.numel() > 0)
    twin(contiguous(x), contiguous(t), cast(dloss, loss_dtype(x.dtype())).expand(x.shape()), dx,
         1 / n);
  return dx;
}

}  // namespace

#define BS_LOSS(function)                                                                      \
  Tensor function(const Tensor& x, const Tensor& t, Reduction reduction) {                     \
    const auto twin = [](const Tensor& p, const Tensor& q, const Losses& to) {                 \
      BS_DISPATCH(p.device(), function, p, q, to);                                             \
    };                                                                                         \
    return loss_by(#function, x, t, reduction, twin);                                          \
  }                                                                                            \
  Tensor function##_backward(const Tensor& x, const Tensor& t, const Tensor& dloss,            \
                             Reduction reduction) {                                            \
    const auto twin = [](const Tensor& p, const Tensor& q, const Tensor& dy, const Tensor& dx, \
                         double scale) {                                                       \
      BS_DISPATCH(p.device(), function##_backward, p, q, dy, dx, scale);                       \
    };                                                                                         \
    return backward(#function "_backward", x, t, dloss, reduction, twin);                      \
  }
BS_LOSS(mse_loss)
BS_LOSS(l1_loss)
BS_LOSS(binary_cross_entropy)
#undef BS_LOSS

namespace {

Tensor scaled_huber(const char* op, const Tensor& x, const Tensor& t, double delta, double factor,
                    Reduction reduction) {
  return loss_by(op, x, t, reduction, [=](const Tensor& p, const Tensor& q, const Losses& to) {
    BS_DISPATCH(p.device(), huber_loss, p, q, to, delta, factor);
  });
}

Tensor scaled_huber_backward(const char* op, const Tensor& x, const Tensor& t, const Tensor& dloss,
                             double delta, double factor, Reduction reduction) {
  const auto twin = [=](const Tensor& p, const Tensor& q, const Tensor& dy, const Tensor& dx,
                        double scale) {
    BS_DISPATCH(p.device(), huber_loss_backward, p, q, dy, dx, delta, factor * scale);
  };
  return backward(op, x, t, dloss, reduction, twin);
}

}  // namespace

Tensor huber_loss(const Tensor& x, const Tensor& t, double delta, Reduction reduction) {
  BS_CHECK(delta > 0, "huber_loss: delta {} <= 0", delta);
  return scaled_huber("huber_loss", x, t, delta, 1, reduction);
}

Tensor huber_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dloss, double delta,
                           Reduction reduction) {
  return scaled_huber_backward("huber_loss_backward", x, t, dloss, delta, 1, reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& t, double beta, Reduction reduction) {
  BS_CHECK(beta >= 0, "smooth_l1_loss: beta {} < 0", beta);
  if (beta == 0) return l1_loss(x, t, reduction);
  return scaled_huber("smooth_l1_loss", x, t, beta, 1 / beta, reduction);
}

Tensor smooth_l1_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dloss, double beta,
                               Reduction reduction) {
  if (beta == 0) return l1_loss_backward(x, t, dloss, reduction);
  return scaled_huber_backward("smooth_l1_loss_backward", x, t, dloss, beta, 1 / beta, reduction);
}

// Where positives are weighted, their term t softplus(-x) comes once more, times weight - 1.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t,
                                        const Tensor& positive_weight, Reduction reduction) {
  const char* op = "binary_cross_entropy_with_logits";
  const auto twin = [](const Tensor& p, const Tensor& q, const Losses& to) {
    BS_DISPATCH(p.device(), binary_cross_entropy_with_logits, p, q, to);
  };
  if (!positive_weight.defined()) return loss_by(op, x, t, reduction, twin);
  const Tensor losses = loss_by(op, x, t, Reduction::none, twin);
  const Tensor more = cast(positive_weight, losses.dtype()) - 1;
  BS_CHECK(broadcast_shapes(op, x.shape(), more.shape()) == x.shape(),
           "{}: positive_weight {} for logits {}", op, more.shape(), x.shape());
  return reduced(losses + more * cast(t, losses.dtype()) * softplus(cast(-x, losses.dtype())),
                 reduction);
}

Tensor binary_cross_entropy_with_logits_backward(const Tensor& x, const Tensor& t,
                                                 const Tensor& positive_weight, const Tensor& dloss,
                                                 Reduction reduction) {
  const char* op = "binary_cross_entropy_with_logits_backward";
  const auto twin = [&](const Tensor& p, const Tensor& q, const Tensor& dy, const Tensor& dx,
                        double scale) {
    BS_DISPATCH(p.device(), binary_cross_entropy_with_logits_backward, p, q, dy, dx, scale);
    if (!positive_weight.defined()) return;
    const Tensor more = cast(positive_weight, dy.dtype()) - 1;
    const Tensor slope = more * cast(q, dy.dtype()) * sigmoid(cast(-p, dy.dtype()));
    copy(cast(dx, dy.dtype()) - dy * slope * scale, dx);
  };
  return backward(op, x, t, dloss, reduction, twin);
}

Tensor kl_div(const Tensor& x, const Tensor& t, Reduction reduction, bool log_target) {
  const auto twin = [=](const Tensor& p, const Tensor& q, const Losses& to) {
    BS_DISPATCH(p.device(), kl_div, p, q, to, log_target);
  };
  return loss_by("kl_div", x, t, reduction, twin);
}

Tensor kl_div_backward(const Tensor& x, const Tensor& t, const Tensor& dloss, Reduction reduction,
                       bool log_target) {
  const auto twin = [=](const Tensor& p, const Tensor& q, const Tensor& dy, const Tensor& dx,
                        double scale) {
    BS_DISPATCH(p.device(), kl_div_backward, p, q, dy, dx, log_target, scale);
  };
  return backward("kl_div_backward", x, t, dloss, reduction, twin);
}

}  // namespace bs
