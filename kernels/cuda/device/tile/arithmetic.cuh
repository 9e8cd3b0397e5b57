#pragma once
// Element types in device code: 16-bit types compute in float, the others in themselves.
#include <bs/kernels/cuda/device/ptx/half.cuh>

namespace bs::cuda::device {

__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline bool widen(bool x) { return x; }
__device__ inline unsigned char widen(unsigned char x) { return x; }
__device__ inline unsigned short widen(unsigned short x) { return x; }
__device__ inline int widen(int x) { return x; }
__device__ inline long widen(long x) { return x; }

/// The type that values of type T are computed in.
template <class T>
using wide = decltype(widen(T{}));

template <class T>
__device__ inline T narrow(wide<T> x) {
  return static_cast<T>(x);
}
template <>
__device__ inline __half narrow<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <class S>
__device__ inline S minus_infinity() {
  return static_cast<S>(__int_as_float(static_cast<int>(0xff800000U)));
}

/// 2^x, in float to 2 ulp, with subnormal results as zero.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline double exp2_of(double x) { return exp2(x); }

/// tanh x, within 2^-11 of itself: as f16 would round it.
__device__ inline float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace bs::cuda::device
