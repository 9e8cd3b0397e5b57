#pragma once
// Elements of products in device code: how they are read, rounded and moved, several at a time.
#include <bs/kernels/cuda/device/ptx/half.cuh>

namespace bs::cuda::device {

template <class T, class U>
inline constexpr bool same_type = false;
template <class T>
inline constexpr bool same_type<T, T> = true;

struct E4m3 {
  unsigned char bits;
};
struct E5m2 {
  unsigned char bits;
};

// One conversion a pair, in a template: GPUs before sm_89 lack it, and must not meet it unused.
template <class T>
__device__ inline float read_fp8(unsigned char bits) {
  unsigned pair;
  if constexpr (same_type<T, E4m3>) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(bits)));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(bits)));
  }
  const unsigned short low = static_cast<unsigned short>(pair);
  return __half2float(__ushort_as_half(low));
}
template <class T>
__device__ inline unsigned char round_fp8(float x) {
  unsigned short pair;
  if constexpr (same_type<T, E4m3>) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(x));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(x));
  }
  return static_cast<unsigned char>(pair);
}

/// The value of an element, in W: float, double, or int for int.
template <class W, class T>
__device__ inline W read_element(T x) {
  if constexpr (same_type<T, E4m3> || same_type<T, E5m2>) {
    return static_cast<W>(read_fp8<T>(x.bits));
  } else if constexpr (same_type<T, __half>) {
    return static_cast<W>(__half2float(x));
  } else if constexpr (same_type<T, __nv_bfloat16>) {
    return static_cast<W>(__bfloat162float(x));
  } else {
    return static_cast<W>(x);
  }
}

/// Two neighbours of f16 or bf16.
template <class T>
__device__ inline unsigned pack_pair(float x, float y);
template <>
__device__ inline unsigned pack_pair<__half>(float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const unsigned*>(&pair);
}
template <>
__device__ inline unsigned pack_pair<__nv_bfloat16>(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const unsigned*>(&pair);
}

/// The element nearest to a value; integers stop at the ends of their range.
template <class T, class W>
__device__ inline T round_element(W x) {
  if constexpr (same_type<T, E4m3> || same_type<T, E5m2>) {
    return T{round_fp8<T>(static_cast<float>(x))};
  } else if constexpr (same_type<T, __half>) {
    return __float2half_rn(static_cast<float>(x));
  } else if constexpr (same_type<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else if constexpr (same_type<T, signed char> || same_type<T, int>) {
    int whole;
    if constexpr (same_type<W, int>) {
      whole = x;
    } else if constexpr (same_type<W, double>) {
      whole = __double2int_rn(x);
    } else {
      whole = __float2int_rn(x);
    }
    if constexpr (same_type<T, int>) return whole;
    return static_cast<T>(whole < -128 ? -128 : whole > 127 ? 127 : whole);
  } else {
    return static_cast<T>(x);
  }
}

/// A register's worth of bytes, moved at once.
template <int Bytes>
struct Bundle;
template <>
struct Bundle<16> {
  using type = uint4;
};
template <>
struct Bundle<8> {
  using type = uint2;
};
template <>
struct Bundle<4> {
  using type = unsigned;
};
template <>
struct Bundle<2> {
  using type = unsigned short;
};
template <>
struct Bundle<1> {
  using type = unsigned char;
};

/// V neighbours of type T in pieces as wide as there are.
template <class T, int V>
struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Neighbours {
  T at[V];
  static constexpr int bytes = V * static_cast<int>(sizeof(T));
  static constexpr int wide = bytes < 16 ? bytes : 16;
  using Piece = typename Bundle<wide>::type;

  __device__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < bytes / wide; ++i)
      reinterpret_cast<Piece*>(at)[i] = reinterpret_cast<const Piece*>(from)[i];
  }
  __device__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < bytes / wide; ++i)
      reinterpret_cast<Piece*>(to)[i] = reinterpret_cast<const Piece*>(at)[i];
  }
};

}  // namespace bs::cuda::device
