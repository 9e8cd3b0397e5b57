#include <bs/kernels/distribution.h>
#include <bs/kernels/random.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace bs::cuda {

namespace {

/// Rounds a double as every twin does: to 16 bits by way of float.
template <class T>
__device__ T round_to(double value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return device::narrow<T>(static_cast<float>(value));
  }
}

template <class T>
__device__ T from_integer(int64_t value) {
  if constexpr (sizeof(T) == 2) {
    return device::narrow<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

__device__ uint64_t pair_of(PhiloxBlock b, int k) { return join(b.word[2 * k], b.word[2 * k + 1]); }

// What becomes of one block of random bits: `count` elements of T.

template <class T, int digits>
struct Uniform {
  static constexpr int count = sizeof(T) == 8 ? 2 : 4;
  double low, range, limit;
  T first;
  __device__ void operator()(PhiloxBlock b, T* out) const {
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const uint64_t bits = count == 2 ? pair_of(b, k) : join(b.word[k], 0);
      const T v = round_to<T>(std::fma(range, unit_interval<digits>(bits), low));
      out[k] = static_cast<double>(device::widen(v)) < limit ? v : first;
    }
  }
};

/// The same numbers in f32, where fits_f32() holds. Words keep their place: of a shifted one the
/// compiler would convert the lowest byte, which is slower.
template <class T, int digits>
struct NarrowUniform {
  static constexpr int count = 4;
  float low, step;  ///< range * 2^-32

  __device__ void operator()(PhiloxBlock b, T* out) const {
    float v[count];
#pragma unroll
    for (int k = 0; k < count; ++k)
      v[k] = std::fma(step, static_cast<float>(b.word[k] >> (32 - digits) << (32 - digits)), low);
    const auto pack = device::narrow_pack<T, count>(v);
#pragma unroll
    for (int k = 0; k < count; ++k) out[k] = pack.at[k];
  }
};

/// The lowest bit of a double that isn't zero, as a number.
double lowest_bit(double value) {
  int exponent = 0;
  const auto digits =
      static_cast<uint64_t>(std::ldexp(std::fabs(std::frexp(value, &exponent)), 53));
  return std::ldexp(1.0, exponent - 53 + std::countr_zero(digits));
}

/// Whether a float's fma of `low` and `range` times a multiple of 2^-digits gives what a double's,
/// rounded to float, does: both are floats, and a double holds every sum exactly. None is rounded
/// to `limit`.
template <class Round>
bool fits_f32(double low, double range, int digits, double limit, Round&& round) {
  const auto is_float = [](double v) { return static_cast<double>(static_cast<float>(v)) == v; };
  if (!is_float(low) || !is_float(range) || range <= 0x1p-90) return false;
  const double step = std::ldexp(lowest_bit(range), -digits);
  const double unit = low == 0 ? step : std::min(step, lowest_bit(low));
  const double largest = std::fma(range, 1 - std::ldexp(1.0, -digits), low);
  return std::fabs(low) + range <= 0x1p53 * unit && round(largest) < limit;
}

template <class T>
struct Normal {
  using W = device::wide<T>;
  static constexpr int count = sizeof(T) == 8 ? 2 : 4;
  W mean, deviation;
  __device__ void put(Pair<W> p, T* out) const {
    out[0] = device::narrow<T>(std::fma(deviation, p.first, mean));
    out[1] = device::narrow<T>(std::fma(deviation, p.second, mean));
  }
  __device__ void operator()(PhiloxBlock b, T* out) const {
    if constexpr (count == 2) {
      put(normal_pair(pair_of(b, 0), pair_of(b, 1)), out);
    } else {
      put(normal_pair(b.word[0], b.word[1]), out);
      put(normal_pair(b.word[2], b.word[3]), out + 2);
    }
  }
};

template <class T>
struct Randint {
  static constexpr int count = 2;
  int64_t low;
  uint64_t range;
  __device__ void operator()(PhiloxBlock b, T* out) const {
#pragma unroll
    for (int k = 0; k < count; ++k)
      out[k] = from_integer<T>(
          static_cast<int64_t>(static_cast<uint64_t>(low) + below(pair_of(b, k), range)));
  }
};

/// The same numbers where 32 bits hold the range and all that it reaches: two products in place of
/// four.
template <class T>
struct NarrowRandint {
  static constexpr int count = 2;
  int32_t low;
  uint32_t range;
  __device__ void operator()(PhiloxBlock b, T* out) const {
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const uint64_t product = uint64_t{b.word[2 * k]} * range + __umulhi(b.word[2 * k + 1], range);
      const int32_t value = low + static_cast<int32_t>(product >> 32);
      if constexpr (sizeof(T) == 2) {
        out[k] = device::narrow<T>(static_cast<float>(value));
      } else {
        out[k] = static_cast<T>(value);
      }
    }
  }
};

template <class T>
struct Bernoulli {
  static constexpr int count = 4;
  uint32_t last;  ///< of the words that give `one`
  T one;

  explicit Bernoulli(uint64_t limit)
      : last(limit > 0 ? static_cast<uint32_t>(limit - 1) : 0), one(limit > 0 ? 1.0F : 0.0F) {}
  __device__ void operator()(PhiloxBlock b, T* out) const {
    const T zero = from_integer<T>(0);
#pragma unroll
    for (int k = 0; k < count; ++k) out[k] = b.word[k] <= last ? one : zero;
  }
};

/// Blocks of random bits that make up to 16 bytes.
template <class T, class Draw>
constexpr int several = std::max(device::pack_size<T> / Draw::count, 1);

/// A thread draws several blocks at a time. It stores their numbers at once where `to` lies at
/// multiples of them. Keys and sequence are alike for all, so what rounds make of these alone is
/// found once.
template <class T, class Draw>
__global__ void random_kernel(T* to, int64_t n, bool aligned,
                              const __grid_constant__ PhiloxKeys<> keys, RandomState state,
                              const __grid_constant__ Draw draw) {
  constexpr int blocks = several<T, Draw>, N = blocks * Draw::count;
  const uint64_t sequence = state.sequence();
  const int64_t step = int64_t{gridDim.x} * blockDim.x, packs = (n + N - 1) / N;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step) {
    device::Pack<T, N> out;
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      draw(philox(keys, static_cast<uint64_t>(i * blocks + b), sequence), out.at + b * Draw::count);
    if (aligned && (i + 1) * N <= n) {
      reinterpret_cast<device::Pack<T, N>*>(to)[i] = out;
      continue;
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (i * N + k < n) to[i * N + k] = out.at[k];
  }
}

template <class T, class Draw>
void launch(const char* op, const Tensor& x, RandomState state, Draw draw, Stream stream) {
  using D = device_type<T>;
  constexpr int threads = 256, N = several<D, Draw> * Draw::count;
  const int64_t n = x.numel();
  const bool aligned = reinterpret_cast<uintptr_t>(x.data()) % alignof(device::Pack<D, N>) == 0;
  random_kernel<<<grid_size(ceil_div(n, N), threads, x.device()), threads, 0, native(stream)>>>(
      pointer<T>(x), n, aligned, PhiloxKeys<>(state.seed), state, draw);
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace

void uniform(const Tensor& x, double low, double high, RandomState state, Stream stream) {
  visit_floating("uniform_", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const auto rounded = [](double v) {
      if constexpr (std::is_same_v<T, double>) return v;
      return static_cast<double>(T(static_cast<float>(v)));
    };
    constexpr int digits = precision(dtype_of<T>);
    const double range = high - low;
    if constexpr (sizeof(T) < 8) {
      if (fits_f32(low, range, digits, rounded(high), rounded)) {
        const auto step = static_cast<float>(std::ldexp(range, -32));
        return launch<T>("uniform_", x, state,
                         NarrowUniform<D, digits>{static_cast<float>(low), step}, stream);
      }
    }
    launch<T>("uniform_", x, state,
              Uniform<D, digits>{low, range, rounded(high), static_cast<D>(rounded(low))}, stream);
  });
}

void normal(const Tensor& x, double mean, double deviation, RandomState state, Stream stream) {
  visit_floating("normal_", x.dtype(), [&]<class T>(Type<T>) {
    using W = device::wide<device_type<T>>;
    launch<T>("normal_", x, state,
              Normal<device_type<T>>{static_cast<W>(mean), static_cast<W>(deviation)}, stream);
  });
}

void randint(const Tensor& x, int64_t low, uint64_t range, RandomState state, Stream stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    constexpr auto most = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
    const int64_t farthest = static_cast<int64_t>(most);
    if (range <= most && low >= -farthest && low <= farthest - static_cast<int64_t>(range))
      return launch<T>("randint", x, state,
                       NarrowRandint<D>{static_cast<int32_t>(low), static_cast<uint32_t>(range)},
                       stream);
    launch<T>("randint", x, state, Randint<D>{low, range}, stream);
  });
}

void bernoulli(const Tensor& x, double p, RandomState state, Stream stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    launch<T>("bernoulli", x, state, Bernoulli<device_type<T>>(threshold(p)), stream);
  });
}

}  // namespace bs::cuda
