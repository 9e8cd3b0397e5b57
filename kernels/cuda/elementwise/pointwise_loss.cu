#include <bs/kernels/pointwise_loss.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/elementwise/elementary.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

using device::wide;

// Each loss of elements of type T is a value and, for backward, a slope in x.
struct Squared {
  template <class T, class W = wide<T>>
  __device__ W value(W x, W t) const {
    return (x - t) * (x - t);
  }
  template <class T, class W = wide<T>>
  __device__ W slope(W x, W t) const {
    return 2 * (x - t);
  }
};
struct Absolute {
  template <class T, class W = wide<T>>
  __device__ W value(W x, W t) const {
    return ::abs(x - t);
  }
  template <class T, class W = wide<T>>
  __device__ W slope(W x, W t) const {
    return x > t ? W(1) : x < t ? W(-1) : x - t;
  }
};
struct Huber {
  double delta, factor;
  template <class T, class W = wide<T>>
  __device__ W value(W x, W t) const {
    const W d = ::abs(x - t), limit = static_cast<W>(delta);
    return static_cast<W>(factor) * (d < limit ? d * d / 2 : limit * (d - limit / 2));
  }
  template <class T, class W = wide<T>>
  __device__ W slope(W x, W t) const {
    const W d = x - t, limit = static_cast<W>(delta);
    return d > limit ? limit : d < -limit ? -limit : d;
  }
};
template <class W>
__device__ W at_least_minus_100(W v) {
  return v < -100 ? W(-100) : v;
}
struct Probability {
  template <class T, class W = wide<T>>
  __device__ W value(W x, W t) const {
    return -(t * at_least_minus_100(relative_log_of<T>(x)) +
             (1 - t) * at_least_minus_100(log_of_one_plus<T>(-x)));
  }
  template <class T, class W = wide<T>>
  __device__ W slope(W x, W t) const {
    const W both = x * (1 - x);
    return quotient_of<T>(x - t, both < W(1e-12) ? W(1e-12) : both);
  }
};
struct Logit {
  template <class T, class W = wide<T>>
  __device__ W value(W x, W t) const {
    // What has no weight is not multiplied: a logit of infinity for a target of 1 has no loss.
    const W size = ::abs(x), weight = x < 0 ? t : 1 - t;
    return (weight == 0 ? W(0) : weight * size) + device::log1p_of<T>(device::exp_of<T>(-size));
  }
  template <class T, class W = wide<T>>
  __device__ W slope(W x, W t) const {
    return device::sigmoid_of<T>(x) - t;
  }
};
template <bool log_target>
struct Divergence {
  template <class T, class W = wide<T>>
  __device__ W value(W x, W t) const {
    const W p = probability<T>(t), log_p = log_target ? t : device::log_of<T>(t);
    return p == 0 ? W(0) : p * (log_p - x);
  }
  template <class T, class W = wide<T>>
  __device__ static W probability(W t) {
    return log_target ? device::exp_of<T>(t) : t;
  }
};

template <class F, class T>
struct Value {
  F f;
  __device__ wide<T> operator()(wide<T> x, wide<T> t) const { return f.template value<T>(x, t); }
};
template <class F, class T>
struct Slope {
  F f;
  wide<T> scale;
  __device__ wide<T> operator()(wide<T> x, wide<T> t, wide<T> dy) const {
    return f.template slope<T>(x, t) * (dy * scale);
  }
};

/// That of a divergence, which is the same whatever x is.
template <bool log_target, class T>
struct DivergenceSlope {
  wide<T> scale;
  __device__ wide<T> operator()(wide<T> t, wide<T> dy) const {
    return -Divergence<log_target>::template probability<T>(t) * (dy * scale);
  }
};
/// The same of a reduced loss, whose elements share one gradient. As an operand it would make the
/// vectors of 16-bit elements as short as those of its own type are.
template <bool log_target, class T>
struct SharedDivergenceSlope {
  DivergenceSlope<log_target, T> slope;
  const wide<T>* dy;
  __device__ wide<T> operator()(wide<T> t) const { return slope(t, __ldg(dy)); }
};

constexpr int sum_threads = 256;

/// The sum of a part of the losses a block; a thread has eight loads under way. Blocks take what
/// lies side by side in turns. Where each had a stretch of its own, all of them read as far from
/// the beginning of one, which took up to 7 % longer, as x and t happened to lie.
template <class T, int N, class F>
__global__ void __launch_bounds__(sum_threads)
    sum_losses_kernel(const F f, const T* x, const T* t, wide<T>* sums, int64_t n, wide<T> scale) {
  using W = wide<T>;
  using Raw = device::Raw<T, N>;
  constexpr int U = 4;
  const int64_t packs = n / N, step = int64_t{gridDim.x} * (U * sum_threads);
  W sum = 0;
  for (int64_t p = blockIdx.x * (U * sum_threads) + threadIdx.x; p < packs; p += step) {
    const auto* from_x = reinterpret_cast<const Raw*>(x) + p;
    const auto* from_t = reinterpret_cast<const Raw*>(t) + p;
    const auto left = static_cast<unsigned>(min(packs - p, int64_t{U * sum_threads}));
    Raw a[U], b[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (u * sum_threads >= left) continue;
      a[u] = from_x[u * sum_threads];
      b[u] = from_t[u * sum_threads];
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (u * sum_threads >= left) continue;
      W v[N], w[N];
      device::widen_pack<T, N>(a[u], v);
      device::widen_pack<T, N>(b[u], w);
#pragma unroll
      for (int k = 0; k < N; ++k) sum += f(v[k], w[k]);
    }
  }
  if (const int64_t i = packs * N + threadIdx.x; blockIdx.x == 0 && i < n)
    sum += f(device::widen(x[i]), device::widen(t[i]));
  sum = device::block_reduce(sum, device::Sum{}, W(0));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum * scale;
}

template <class F>
void forward(const char* op, F f, const Tensor& x, const Tensor& t, const Losses& to,
             Stream stream) {
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    if (to.part == 0) return map<W, T, T>(op, Value<F, D>{f}, to.y, stream, x, t);
    visit_pack<T>(aligned16(x, t), to.part, [&]<int N>(std::integral_constant<int, N>) {
      sum_losses_kernel<D, N><<<grid_of(op, to.y.numel()), sum_threads, 0, native(stream)>>>(
          Value<F, D>{f}, pointer<T>(x), pointer<T>(t), pointer<W>(to.y), x.numel(),
          static_cast<W>(to.scale));
      BS_CUDA_CHECK_LAUNCH(op);
    });
  });
}

template <class F>
void backward(const char* op, F f, const Tensor& x, const Tensor& t, const Tensor& dy,
              const Tensor& dx, double scale, Stream stream) {
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const Slope<F, D> slope{f, static_cast<wide<D>>(scale)};
    map<T, T, T, wide<D>>(op, slope, dx, stream, x, t, dy);
  });
}

template <bool log_target>
void divergence_backward(const Tensor& t, const Tensor& dy, const Tensor& dx, double scale,
                         Stream stream) {
  const char* op = "kl_div_backward";
  const bool shared = std::ranges::all_of(dy.strides(), [](int64_t step) { return step == 0; });
  visit_floating(op, dx.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const DivergenceSlope<log_target, D> slope{static_cast<W>(scale)};
    if (!shared) return map<T, T, W>(op, slope, dx, stream, t, dy);
    map<T, T>(op, SharedDivergenceSlope<log_target, D>{slope, pointer<W>(dy)}, dx, stream, t);
  });
}

}  // namespace

void mse_loss(const Tensor& x, const Tensor& t, const Losses& to, Stream stream) {
  forward("mse_loss", Squared{}, x, t, to, stream);
}

void mse_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy, const Tensor& dx,
                       double scale, Stream stream) {
  backward("mse_loss_backward", Squared{}, x, t, dy, dx, scale, stream);
}

void l1_loss(const Tensor& x, const Tensor& t, const Losses& to, Stream stream) {
  forward("l1_loss", Absolute{}, x, t, to, stream);
}

void l1_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy, const Tensor& dx,
                      double scale, Stream stream) {
  backward("l1_loss_backward", Absolute{}, x, t, dy, dx, scale, stream);
}

void huber_loss(const Tensor& x, const Tensor& t, const Losses& to, double delta, double factor,
                Stream stream) {
  forward("huber_loss", Huber{delta, factor}, x, t, to, stream);
}

void huber_loss_backward(const Tensor& x, const Tensor& t, const Tensor& dy, const Tensor& dx,
                         double delta, double scale, Stream stream) {
  backward("huber_loss_backward", Huber{delta, 1}, x, t, dy, dx, scale, stream);
}

void binary_cross_entropy(const Tensor& x, const Tensor& t, const Losses& to, Stream stream) {
  forward("binary_cross_entropy", Probability{}, x, t, to, stream);
}

void binary_cross_entropy_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                   const Tensor& dx, double scale, Stream stream) {
  backward("binary_cross_entropy_backward", Probability{}, x, t, dy, dx, scale, stream);
}

void binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t, const Losses& to,
                                      Stream stream) {
  forward("binary_cross_entropy_with_logits", Logit{}, x, t, to, stream);
}

void binary_cross_entropy_with_logits_backward(const Tensor& x, const Tensor& t, const Tensor& dy,
                                               const Tensor& dx, double scale, Stream stream) {
  backward("binary_cross_entropy_with_logits_backward", Logit{}, x, t, dy, dx, scale, stream);
}

void kl_div(const Tensor& x, const Tensor& t, const Losses& to, bool log_target, Stream stream) {
  if (log_target) return forward("kl_div", Divergence<true>{}, x, t, to, stream);
  forward("kl_div", Divergence<false>{}, x, t, to, stream);
}

void kl_div_backward(const Tensor&, const Tensor& t, const Tensor& dy, const Tensor& dx,
                     bool log_target, double scale, Stream stream) {
  if (log_target) return divergence_backward<true>(t, dy, dx, scale, stream);
  divergence_backward<false>(t, dy, dx, scale, stream);
}

}  // namespace bs::cuda
