#pragma once
// Operands of the f32 kernels of wgmma in boxes of 32 lines, as the copy engine brings them: the
// narrow one is made there what wgmma reads.
#include <bs/kernels/cuda/device/ptx/mma.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

__device__ inline float read_shared_float(unsigned address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}
__device__ inline void write_shared(unsigned address, const float (&x)[4]) {
  write_shared(address, make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]),
                                   __float_as_uint(x[2]), __float_as_uint(x[3])));
}

/// The large term of an f32, and what TF32 keeps of the rest; TileMultiply<float> says why so.
__device__ inline float large_term(float x) {
  return __uint_as_float(__float_as_uint(x) & 0xffffe000U);
}
__device__ inline float small_term(float x, float large) {
  return (x - large) * (1 + 1.05F * 0x1p-11F);
}

/// 32 lines of 32 elements, along the depth or, `side` of them in a box, across it. `split`: the
/// small terms go elsewhere.
template <bool along_k, bool split, int side>
struct Tf32Box {
  static constexpr int line = 128;  // bytes
  static constexpr unsigned bytes = 32 * line;

  /// Where, of a box of 32 lines of the depth, number `k` has the `quad`th four of 32 columns.
  __device__ static unsigned across_at(unsigned box_at, unsigned k, unsigned quad) {
    if constexpr (side == 32) return box_at + k * line + (quad ^ (k % 8)) * 16;
    return box_at + quad / 4 * (bytes / 2) + k * (line / 2) + (quad % 4 ^ (k / 2 % 4)) * 16;
  }

  /// Turns and splits 32 lines of it, in place.
  __device__ static void convert(unsigned from, unsigned small) {
    const unsigned lane = fresh_thread() % 32;
    if constexpr (along_k) {
      float4 came[8];  // all at once: one by one each would wait for the one before
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) came[i] = load_shared(from + (i * 32 + lane) * 16);
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) {
        const unsigned at = (i * 32 + lane) * 16;
        const float4 x = came[i];
        const float large[4] = {large_term(x.x), large_term(x.y), large_term(x.z), large_term(x.w)};
        const float rest[4] = {small_term(x.x, large[0]), small_term(x.y, large[1]),
                               small_term(x.z, large[2]), small_term(x.w, large[3])};
        write_shared(from + at, large);
        write_shared(small + at, rest);
      }
    } else {
      float x[32];  // a column of what came, a line of what shall be
#pragma unroll
      for (unsigned k = 0; k < 32; ++k)
        x[k] = read_shared_float(across_at(from, k, lane / 4) + lane % 4 * 4);
      __syncwarp();
#pragma unroll
      for (unsigned chunk = 0; chunk < 8; ++chunk) {
        const unsigned at = lane * line + (chunk ^ (lane % 8)) * 16;
        float large[4], rest[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float value = x[4 * chunk + i];
          large[i] = split ? large_term(value) : value;
          rest[i] = small_term(value, large[i]);
        }
        write_shared(from + at, large);
        if constexpr (split) write_shared(small + at, rest);
      }
    }
  }
};

}  // namespace bs::cuda::device
