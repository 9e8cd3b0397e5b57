#include <bs/kernels/pointwise_loss.h>

#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu {

namespace {

/// In an order that the number of them decides alone.
template <class W>
W sum_of(const W* values, int64_t n) {
  constexpr int64_t lanes = 16;
  W sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t j = 0; j < lanes; ++j) sums[j] += values[i + j];
  W sum = 0;
  for (; i < n; ++i) sum += values[i];
  for (const W more : sums) sum += more;
  return sum;
}

template <class F>
void forward(const char* op, const F& f, const Tensor& x, const Tensor& t, const Losses& to) {
  visit_wide(op, x.dtype(), [&]<class W>(Type<W>) {
    if (to.part == 0) return map<W, W, W>(f, to.y, x, t);
    const int64_t n = x.numel();
    const Tensor all_x = x.view({n}), all_t = t.view({n});
    const int team = team_size(static_cast<double>(n), elementwise_grain);
    parallel_each(to.y.numel(), team, [&](int64_t i) {
      const int64_t first = i * to.part, count = std::min(to.part, n - first);
      const Tensor losses = Tensor::empty({count}, dtype_of<W>, Device::cpu());
      map<W, W, W>(f, losses, all_x.slice(0, first, first + count),
                   all_t.slice(0, first, first + count));
      to.y.data<W>()[i] = sum_of(losses.data<W>(), count) * static_cast<W>(to.scale);
    });
  });
}

/// dx = slope(x, t) * dy * scale.
template <class F>
void backward(const char* op, const F& slope, const Tensor& x, const Tensor& t, const Tensor& dy,
              const Tensor& dx, double scale) {
  visit_wide(op, x.dtype(), [&]<class W>(Type<W>) {
    const auto f = [=](W v, W w, W d) { return slope(v, w) * (d * W(scale)); };
    map<W, W, W, W>(f, dx, x, t, dy);
  });
}

/// max(v, -100), and NaN for NaN.
template <class W>
W at_least_minus_100(W v) {
  return v < -100 ? W(-100) : v;
}

}  // namespace

void mse_loss(const Tensor& x, const Tensor& t, const Losses& to, Stream) {
  forward(
      "mse_loss", [](auto v, auto w) { return (v - w) * (v - w); }, x, t, to);
}

void mse_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy, const Tensor& dx,
                       double scale, Stream) {
  backward(
      "mse_loss_backward", [](auto v, auto w) { return 2 * (v - w); }, x, t, dy, dx, scale);
}

void l1_loss(const Tensor& x, const Tensor& t, const Losses& to, Stream) {
  forward(
      "l1_loss", [](auto v, auto w) { return std::abs(v - w); }, x, t, to);
}

void l1_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy, const Tensor& dx,
                      double scale, Stream) {
  const auto slope = []<class W>(W v, W w) { return v > w ? W(1) : v < w ? W(-1) : v - w; };
  backward("l1_loss_backward", slope, x, t, dy, dx, scale);
}

void huber_loss(const Tensor& x, const Tensor& t, const Losses& to, double delta, double factor,
                Stream) {
  const auto f = [=]<class W>(W v, W w) {
    const W d = std::abs(v - w);
    return W(factor) * (d < W(delta) ? d * d / 2 : W(delta) * (d - W(delta) / 2));
  };
  forward("huber_loss", f, x, t, to);
}

void huber_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy, const Tensor& dx,
                         double delta, double scale, Stream) {
  const auto slope = [=]<class W>(W v, W w) {
    const W d = v - w;
    return d > W(delta) ? W(delta) : d < W(-delta) ? W(-delta) : d;
  };
  backward("huber_loss_backward", slope, x, t, dy, dx, scale);
}

void binary_cross_entropy(const Tensor& x, const Tensor& t, const Losses& to, Stream) {
  const auto f = [](auto v, auto w) {
    return -(w * at_least_minus_100(std::log(v)) + (1 - w) * at_least_minus_100(std::log1p(-v)));
  };
  forward("binary_cross_entropy", f, x, t, to);
}

void binary_cross_entropy_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                   const Tensor& dx, double scale, Stream) {
  const auto slope = []<class W>(W v, W w) {
    const W both = v * (1 - v);
    return (v - w) / (both < W(1e-12) ? W(1e-12) : both);
  };
  backward("binary_cross_entropy_backward", slope, x, t, dy, dx, scale);
}

void binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t, const Losses& to, Stream) {
  // What has no weight is not multiplied: a logit of infinity for a target of 1 has no loss.
  const auto f = []<class W>(W v, W w) {
    const W size = std::abs(v);
    const W weight = v < 0 ? w : 1 - w;
    return (weight == 0 ? W(0) : weight * size) + math::log1p(math::exp(-size));
  };
  forward("binary_cross_entropy_with_logits", f, x, t, to);
}

void binary_cross_entropy_with_logits_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                               const Tensor& dx, double scale, Stream) {
  const auto slope = [](auto v, auto w) { return math::sigmoid(v) - w; };
  backward("binary_cross_entropy_with_logits_backward", slope, x, t, dy, dx, scale);
}

void kl_div(const Tensor& x, const Tensor& t, const Losses& to, bool log_target, Stream) {
  if (log_target) {
    const auto f = []<class W>(W v, W w) {
      const W p = math::exp(w);
      return p == 0 ? W(0) : p * (w - v);
    };
    return forward("kl_div", f, x, t, to);
  }
  const auto f = []<class W>(W v, W w) { return w == 0 ? W(0) : w * (math::log(w) - v); };
  forward("kl_div", f, x, t, to);
}

void kl_div_backward(const Tensor& x, const Tensor& t, const Tensor& dy, const Tensor& dx,
                     bool log_target, double scale, Stream) {
  if (log_target)
    return backward(
        "kl_div_backward", [](auto, auto w) { return -math::exp(w); }, x, t, dy, dx, scale);
  backward(
      "kl_div_backward", [](auto, auto w) { return -w; }, x, t, dy, dx, scale);
}

}  // namespace bs::cpu
