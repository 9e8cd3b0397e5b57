#pragma once
// Several neighbours loaded and stored as one: 16 bytes are the widest a thread can move at once.
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int pack_size = 16 / static_cast<int>(sizeof(T));

/// A pack on its way: as words, for the compiler gives each 16-bit element of an array that lives
/// for long a register of its own.
template <class T, int N, bool words = sizeof(T) * N % 16 == 0>
struct RawPack {
  using type = Pack<T, N>;
};
template <class T, int N>
struct RawPack<T, N, true> {
  using type = Pack<unsigned, static_cast<int>(sizeof(T)) * N / 4>;
};
template <class T, int N>
using Raw = typename RawPack<T, N>::type;

/// 16 bytes of what is read or written once: among the first to leave the caches.
template <class R>
__device__ inline R load_once(const R* from) {
  if constexpr (sizeof(R) == 16) {
    const uint4 x = __ldcs(reinterpret_cast<const uint4*>(from));
    return reinterpret_cast<const R&>(x);
  } else {
    return *from;
  }
}
template <class R>
__device__ inline void store_once(R* to, const R& x) {
  if constexpr (sizeof(R) == 16) {
    __stcs(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4&>(x));
  } else {
    *to = x;
  }
}

/// The elements of a pack as numbers; of a word's two bfloat16 the upper one is one already. The
/// pack comes by value: through a reference to memory each of its words may be loaded alone.
template <class T, int N>
__device__ inline void widen_pack(Raw<T, N> raw, wide<T> (&values)[N]) {
  if constexpr (sizeof(T) * N % 16 == 0 && std::is_same_v<T, __nv_bfloat16>) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      values[i] = __uint_as_float(raw.at[i / 2] << 16);
      values[i + 1] = __uint_as_float(raw.at[i / 2] & 0xffff0000U);
    }
  } else if constexpr (sizeof(T) * N % 16 == 0 && std::is_same_v<T, __half>) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(raw.at[i / 2]));
      values[i] = pair.x;
      values[i + 1] = pair.y;
    }
  } else {
    const auto& pack = reinterpret_cast<const Pack<T, N>&>(raw);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = widen(pack.at[i]);
  }
}

/// Two numbers rounded and side by side, by one instruction where there is one.
__device__ inline __half2 narrow_pair(float low, float high, __half) {
  return __floats2half2_rn(low, high);
}
__device__ inline __nv_bfloat162 narrow_pair(float low, float high, __nv_bfloat16) {
  return __floats2bfloat162_rn(low, high);
}
template <class T>
__device__ inline Pack<T, 2> narrow_pair(T low, T high, T) {
  return {{low, high}};
}

template <class T, int N>
__device__ inline Pack<T, N> narrow_pack(const wide<T> (&values)[N]) {
  Pack<T, N> out;
  if constexpr (sizeof(T) == 2 && sizeof(wide<T>) == 4 && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const auto pair = narrow_pair(values[i], values[i + 1], T{});
      out.at[i] = pair.x;
      out.at[i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out.at[i] = narrow<T>(values[i]);
  }
  return out;
}

}  // namespace bs::cuda::device
