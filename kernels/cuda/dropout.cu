#include <bs/kernels/distribution.h>
#include <bs/kernels/dropout.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/elementwise.cuh>

#include <algorithm>
#include <type_traits>

namespace bs::cuda {

namespace {

using device::Pack;
using device::Raw;
using device::wide;

constexpr int threads = 256;
/// Elements of a thread: 16 bytes, but at least four.
template <class T>
constexpr int vector = std::max(device::pack_size<T>, 4);

/// What becomes of elements that stay: the factor first, then x, and dy where there is one.
template <class T>
struct Scaled {
  __device__ wide<T> operator()(wide<T> factor, wide<T> x) const { return x * factor; }
};
template <class T, template <class> class F>
struct Activated {
  __device__ wide<T> operator()(wide<T> factor, wide<T> x) const { return F<T>{}(x)*factor; }
};
template <class T, template <class> class F>
struct Differentiated {
  __device__ wide<T> operator()(wide<T> factor, wide<T> x, wide<T> dy) const {
    return F<T>{}(x, dy * factor);
  }
};

/// A thread a vector of elements, four of which a block of random bits serves. `packs` of them are
/// whole; elements behind are taken one by one.
template <class T, class F>
__global__ void __launch_bounds__(threads)
    dropout_kernel(F f, const T* x, const T* dy, T* y, int64_t packs, int64_t n, unsigned limit,
                   wide<T> scale, const __grid_constant__ PhiloxKeys<> keys, RandomState state,
                   uint64_t first_block) {
  constexpr int N = vector<T>;
  const auto stays = [&](wide<T> first, wide<T> second) {
    if constexpr (std::is_invocable_v<F, wide<T>, wide<T>, wide<T>>)
      return f(scale, first, second);
    else
      return f(scale, first);
  };
  const uint64_t sequence = state.sequence();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < packs) {
    const auto raw = reinterpret_cast<const Raw<T, N>*>(x)[i];
    Raw<T, N> raw_dy{};
    if (dy) raw_dy = reinterpret_cast<const Raw<T, N>*>(dy)[i];
    wide<T> values[N], second[N];
    device::widen_pack<T, N>(raw, values);
    device::widen_pack<T, N>(raw_dy, second);
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const PhiloxBlock bits =
          philox(keys, first_block + static_cast<uint64_t>(i * N + k) / 4, sequence);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        values[k + j] = bits.word[j] < limit ? wide<T>(0) : stays(values[k + j], second[k + j]);
    }
    reinterpret_cast<Pack<T, N>*>(y)[i] = device::narrow_pack<T, N>(values);
  }
  const int64_t at = packs * N + i;
  if (at < n) {
    const PhiloxBlock bits = philox(keys, first_block + static_cast<uint64_t>(at) / 4, sequence);
    const unsigned word = at % 4 < 2 ? (at % 4 == 0 ? bits.word[0] : bits.word[1])
                                     : (at % 4 == 2 ? bits.word[2] : bits.word[3]);
    const wide<T> second = dy ? device::widen(dy[at]) : wide<T>(0);
    y[at] = device::narrow<T>(word < limit ? wide<T>(0) : stays(device::widen(x[at]), second));
  }
}

/// y = f(factor, x), or f(factor, x, dy), with the random zeros. All are dense; `first` is the
/// number of their first element.
template <class D, class F>
void drop(const F& f, const Tensor& x, const Tensor& dy, const Tensor& y, double p,
          RandomState state, Stream stream, int64_t first = 0) {
  const int64_t n = x.numel();
  const auto limit = static_cast<unsigned>(threshold(p));  // p < 1
  bool aligned = true;
  for (const Tensor* t : {&x, &dy, &y})
    aligned = aligned && (!t->defined() || reinterpret_cast<uintptr_t>(t->data()) % 16 == 0);
  const int64_t packs = aligned ? n / vector<D> : 0;
  const int64_t work = std::max(packs, n - packs * vector<D>);
  dropout_kernel<D><<<static_cast<unsigned>(ceil_div(work, threads)), threads, 0, native(stream)>>>(
      f, static_cast<const D*>(x.data()), dy.defined() ? static_cast<const D*>(dy.data()) : nullptr,
      static_cast<D*>(y.data()), packs, n, limit, static_cast<wide<D>>(1 / (1 - p)),
      PhiloxKeys<>(state.seed), state, static_cast<uint64_t>(first / 4));
}

struct KeptChannel {
  template <class W>
  __device__ W operator()(W x, W factor) const {
    return factor == 0 ? W(0) : x * factor;
  }
};

}  // namespace

void dropout2d(const Tensor& x, const Tensor& factor, const Tensor& y, Stream stream) {
  visit_floating("dropout2d", y.dtype(), [&]<class T>(Type<T>) {
    map_alike<T>("dropout2d", KeptChannel{}, y, stream, x, factor);
  });
}

void dropout(const Tensor& x, const Tensor& y, double p, RandomState state, int64_t first,
             Stream stream) {
  visit_floating("dropout", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    drop<D>(Scaled<D>{}, x, {}, y, p, state, stream, first);
  });
  BS_CUDA_CHECK_LAUNCH("dropout");
}

void activation_dropout(const Tensor& x, const Tensor& y, Activation activation, double p,
                        RandomState state, Stream stream) {
  visit_floating("activation_dropout", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const auto run = [&](const auto& f) { drop<D>(f, x, {}, y, p, state, stream); };
    if (activation == Activation::relu) return run(Activated<D, device::Relu>{});
    if (activation == Activation::gelu) return run(Activated<D, device::GeluErf>{});
    run(Activated<D, device::GeluTanh>{});
  });
  BS_CUDA_CHECK_LAUNCH("activation_dropout");
}

void activation_dropout_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                                 Activation activation, double p, RandomState state,
                                 Stream stream) {
  visit_floating("activation_dropout_backward", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const auto run = [&](const auto& f) { drop<D>(f, x, dy, dx, p, state, stream); };
    if (activation == Activation::relu) return run(Differentiated<D, device::ReluBackward>{});
    if (activation == Activation::gelu) return run(Differentiated<D, device::GeluErfBackward>{});
    run(Differentiated<D, device::GeluTanhBackward>{});
  });
  BS_CUDA_CHECK_LAUNCH("activation_dropout_backward");
}

}  // namespace bs::cuda
