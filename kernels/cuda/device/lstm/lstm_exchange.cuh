#pragma once
// How the CTAs of a persistent LSTM pass 16-bit numbers to each other: through the memory of the
// result itself, in pieces of 8 numbers that are written and read as one (accesses of 128 bits are
// atomic). The host makes all of it `unwritten` first, a pair of NaNs that arithmetic does not give
// (its NaNs are 0x7fff), and who needs a piece reads it until it is another. So a number is on its
// way through L2 once: no counter follows it, and no fence comes before one. Nothing else is handed
// over by these accesses, so that no order among them matters.
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

inline constexpr unsigned unwritten = 0xffffffffU;  ///< memset's byte 0xff
inline constexpr unsigned all_lanes = 0xffffffffU;

__device__ inline unsigned take_word(const void* at) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
struct Piece {
  unsigned word[4];
  __device__ bool lacks() const { return word[3] == unwritten; }
};
/// A piece, or zeros where there is none.
__device__ inline Piece take(const void* at, bool there) {
  unsigned long long low = 0, high = 0;
  asm volatile(
      "{\n.reg .pred p;\n.reg .b128 v;\nsetp.ne.u32 p, %3, 0;\nmov.b128 v, {%0, %1};\n"
      "@p ld.relaxed.gpu.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;\n}"
      : "+l"(low), "+l"(high)
      : "l"(at), "r"(static_cast<unsigned>(there))
      : "memory");
  return {{static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
           static_cast<unsigned>(high), static_cast<unsigned>(high >> 32)}};
}
/// The pointer as it is. The compiler can't know that, and so computes it here, and only here,
/// rather than again and again between loads.
template <class T>
__device__ inline T* fixed(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}
__device__ inline bool lacks(const uint4& v) {
  return v.x == unwritten || v.y == unwritten || v.z == unwritten || v.w == unwritten;
}

/// Stores the numbers of 8 neighbouring lanes as a piece, at the address that the first one has.
template <class T>
__device__ inline void publish(T* at, float value, bool valid) {
  const T narrowed = narrow<T>(value);
  const unsigned own = *reinterpret_cast<const unsigned short*>(&narrowed);
  unsigned word = own | __shfl_down_sync(all_lanes, own, 1) << 16;
  if (word == unwritten) word = 0x7fff7fffU;
  const unsigned long long low =
      word | static_cast<unsigned long long>(__shfl_down_sync(all_lanes, word, 2)) << 32;
  const unsigned third = __shfl_down_sync(all_lanes, word, 4);
  const unsigned fourth = __shfl_down_sync(all_lanes, word, 6);
  const unsigned long long high = third | static_cast<unsigned long long>(fourth) << 32;
  if (!valid || threadIdx.x % 8 != 0) return;
  asm volatile(
      "{\n.reg .b128 v;\nmov.b128 v, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(at),
      "l"(low), "l"(high)
      : "memory");
}

/// Brings lines of 128 bytes into L2, divided among the CTAs of blockIdx.x; of each CTA the
/// threads from `first` on do it.
__device__ inline void prefetch_lines(const void* from, int lines, int first) {
  const int each = (lines + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int i = static_cast<int>(threadIdx.x) - first;
  const int line = static_cast<int>(blockIdx.x) * each + i;
  if (i < 0 || i >= each || line >= lines) return;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + line * 128LL));
}

/// What all CTAs of the persistent kernels have in common.
struct PersistentShape {
  static constexpr int threads = 256, warps = 8;
  static constexpr int block = 8;     ///< cells, of which a CTA has one block or two
  static constexpr int prefetch = 3;  ///< steps ahead
};

}  // namespace bs::cuda::device
