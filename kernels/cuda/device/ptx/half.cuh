#pragma once
// f16 and bf16 in device code. nvcc takes CUDA's headers. NVRTC would spend a tenth of a small
// kernel's compilation on them, and gets the little of them that kernels use, under the same names.
#ifndef __CUDACC_RTC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else

struct __half {
  unsigned short bits;
};
struct __nv_bfloat16 {
  unsigned short bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

__device__ inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
__device__ inline float __half2float(__half x) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
}
__device__ inline float __bfloat162float(__nv_bfloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline __half __float2half_rn(float x) {
  __half out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
}
__device__ inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  __nv_bfloat16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
}
__device__ inline __half2 __floats2half2_rn(float x, float y) {
  __half2 out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(reinterpret_cast<unsigned&>(out)) : "f"(y), "f"(x));
  return out;
}
__device__ inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  __nv_bfloat162 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(reinterpret_cast<unsigned&>(out)) : "f"(y), "f"(x));
  return out;
}

#endif
