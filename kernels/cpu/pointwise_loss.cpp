#include <bs/kernels/pointwise_loss.h>

#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu {

namespace {

/// The sum of f(x[i], t[i]), in an order that `n` decides alone.
template <class T, class F, class W = Wide<T>>
W sum_of_losses(const F& f, const T* x, const T* t, int64_t n) {
  PieceBuffer<T> first, second;
  W sum = 0;
  for (int64_t at = 0; at < n; at += piece_size) {
    const int64_t count = std::min(piece_size, n - at);
    const W *v = first.read(x + at, count), *w = second.read(t + at, count);
    sum += sum_of<W>(count, [=, &f](int64_t i) { return f(v[i], w[i]); });
  }
  return sum;
}

template <class F>
void forward(const char* op, const F& f, const Tensor& x, const Tensor& t, const Losses& to) {
  if (to.part == 0)
    return visit_wide(op, x.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, to.y, x, t); });
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T *from = x.data<T>(), *targets = t.data<T>();
    W* sums = to.y.data<W>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / to.part);
    parallel_for(to.y.numel(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i * to.part, count = std::min(to.part, x.numel() - first);
        sums[i] = sum_of_losses(f, from + first, targets + first, count) * static_cast<W>(to.scale);
      }
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
