#pragma once
// Words of global memory by which CTAs tell each other what they have written.

namespace bs::cuda::device {

__device__ inline int load_acquire(const int* p) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
__device__ inline void store_release(int* p, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
__device__ inline int add_acquire_release(int* p, int value) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(p), "r"(value)
               : "memory");
  return before;
}

}  // namespace bs::cuda::device
