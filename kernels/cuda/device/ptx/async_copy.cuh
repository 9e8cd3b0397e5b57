#pragma once
// Copies from global to shared memory that run beside the arithmetic (cp.async, sm_80 and later).

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

/// Either of them, where `wanted`; else shared memory is left as it is.
template <int Bytes>
__device__ inline void copy_async_if(bool wanted, unsigned shared, const void* global, bool valid) {
  const int have = valid ? Bytes : 0, condition = wanted;
  if constexpr (Bytes == 16) {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %3, 0;\n"
        "@p cp.async.cg.shared.global [%0], [%1], 16, %2;}" ::"r"(shared),
        "l"(global), "r"(have), "r"(condition)
        : "memory");
  } else {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %4, 0;\n"
        "@p cp.async.ca.shared.global [%0], [%1], %2, %3;}" ::"r"(shared),
        "l"(global), "n"(Bytes), "r"(have), "r"(condition)
        : "memory");
  }
}

/// 16 bytes at once.
__device__ inline void write_shared(unsigned shared, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}
/// 8 bytes at once.
__device__ inline void write_shared(unsigned shared, const uint2& x) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(shared), "r"(x.x), "r"(x.y) : "memory");
}
/// Reads 16 bytes at once.
__device__ inline uint4 read_shared(unsigned shared) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(shared)
               : "memory");
  return x;
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `Pending` of the committed groups are still on their way.
template <int Pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace bs::cuda::device
