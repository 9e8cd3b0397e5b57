#pragma once
// Copies from global to shared memory that run beside the arithmetic (cp.async, sm_80 and later).
#include <cuda_fp16.h>

namespace bs::cuda::device {

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// 16 bytes past L1; where `valid` is false nothing is read and zeros are written. Both pointers
/// are aligned to 16.
__device__ inline void copy_async_16(unsigned shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async_16(void* shared, const void* global, bool valid) {
  copy_async_16(shared_address(shared), global, valid);
}

/// The same for 4, 8 or 16 bytes, which both pointers are aligned to, through L1.
template <int Bytes>
__device__ inline void copy_async(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
               "l"(global), "n"(Bytes), "r"(valid ? Bytes : 0)
               : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `Pending` of the committed groups are still on their way.
template <int Pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace bs::cuda::device
