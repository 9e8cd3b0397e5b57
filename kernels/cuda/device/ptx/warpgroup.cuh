#pragma once
// Products of a warpgroup, four consecutive warps, with operands in shared memory (wgmma, sm_90a).
// The instruction itself depends on types and shape and is emitted beside the kernel
// (kernels/cuda/jit/warpgroup_mma.h); here is what surrounds it.
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>

namespace bs::cuda::device {

inline constexpr int warpgroup_size = 128;

/// threadIdx.x, of which the compiler does not know that it stays what it was: so what follows from
/// it is computed where it is used, and takes no registers meanwhile.
__device__ inline unsigned fresh_thread() {
  unsigned thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

__device__ inline float4 load_shared(unsigned from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
__device__ inline void store_shared(unsigned to, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
}

/// Registers and shared memory written before are seen by the products that follow.
__device__ inline void warpgroup_arrive() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Pending` committed groups of products are unfinished.
template <int Pending>
__device__ inline void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Keeps reads of the sums behind the wait before it, which the compiler cannot see they need.
template <int N>
__device__ inline void warpgroup_pin(float (&sums)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int Registers>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// How a matrix lies in shared memory: lines of `Swizzle` bytes (32, 64 or 128), groups of 8 lines
/// `group` bytes apart; and where the matrix is longer along the lines than one of them, its
/// pieces `piece` bytes apart. The 16-byte columns of line r are exchanged by the copy engine's
/// pattern of the same name. PTX ISA, "Matrix descriptor".
template <int Swizzle>
__device__ constexpr unsigned long long matrix_descriptor(unsigned group, unsigned piece) {
  constexpr unsigned long long mode = Swizzle == 128 ? 1 : Swizzle == 64 ? 2 : 3;
  return mode << 62 | static_cast<unsigned long long>(group >> 4) << 32 |
         static_cast<unsigned long long>(piece >> 4) << 16;
}
/// The descriptor's address field.
__device__ inline unsigned long long descriptor_address(unsigned shared) {
  return (shared & 0x3FFFFu) >> 4;
}

/// Writes four 8x8 matrices of 16-bit elements; each lane gives the address of one row of one.
template <bool transposed>
__device__ inline void store_matrix_x4(unsigned address, const unsigned (&r)[4]) {
  if constexpr (transposed) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  }
}

}  // namespace bs::cuda::device
