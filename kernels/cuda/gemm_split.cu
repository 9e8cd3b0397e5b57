#include <bs/kernels/cuda/gemm_split.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/mma.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

struct Split {
  const float* from;
  float* to;
  long long side_stride, depth_stride, batch_stride;
  long long side, depth, ld;
  int batches;
};

/// Writes the parts of four neighbours, of which `count` are in the matrix.
__device__ void write_parts(const Split& p, long long batch, long long row, long long k,
                            const float (&x)[4], int count) {
  float large[4], small[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto parts = device::Mma<float>::split(x[i]);
    large[i] = __uint_as_float(parts.large);
    small[i] = __uint_as_float(parts.small);
  }
  float* const to = p.to + (2 * batch * p.side + row) * p.ld + k;
  if (count == 4) {
    *reinterpret_cast<float4*>(to) = {large[0], large[1], large[2], large[3]};
    *reinterpret_cast<float4*>(to + p.side * p.ld) = {small[0], small[1], small[2], small[3]};
    return;
  }
  for (int i = 0; i < count; ++i) {
    to[i] = large[i];
    to[p.side * p.ld + i] = small[i];
  }
}

/// Depth contiguous. Four numbers a thread and turn.
__global__ void __launch_bounds__(threads) split_along(Split p, bool wide) {
  const long long pieces = (p.depth + 3) / 4, all = p.batches * p.side * pieces;
  for (long long i = blockIdx.x * static_cast<long long>(threads) + threadIdx.x; i < all;
       i += static_cast<long long>(gridDim.x) * threads) {
    const long long line = i / pieces, k = i % pieces * 4;
    const long long batch = line / p.side, row = line % p.side;
    const int count = static_cast<int>(p.depth - k < 4 ? p.depth - k : 4);
    const float* const x = p.from + batch * p.batch_stride + row * p.side_stride + k;
    float values[4] = {};
    if (wide && count == 4) {
      const float4 four = __ldcs(reinterpret_cast<const float4*>(x));
      values[0] = four.x;
      values[1] = four.y;
      values[2] = four.z;
      values[3] = four.w;
    } else {
      for (int j = 0; j < count; ++j) values[j] = x[j];
    }
    write_parts(p, batch, row, k, values, count);
  }
}

/// Sides contiguous. A CTA turns a tile of 64 x 64 in shared memory.
__global__ void __launch_bounds__(threads) split_across(Split p, int tiles_down, int tiles_along) {
  constexpr int tile = 64;
  __shared__ float turned[tile][tile + 1];  // [depth][side]
  const int in_batch = static_cast<int>(blockIdx.x) % (tiles_down * tiles_along);
  const long long batch = static_cast<int>(blockIdx.x) / (tiles_down * tiles_along);
  const long long row0 = in_batch % tiles_down * tile, k0 = in_batch / tiles_down * tile;
  const float* const from = p.from + batch * p.batch_stride;
  const int thread = static_cast<int>(threadIdx.x), column = thread % tile;
#pragma unroll
  for (int i = 0; i < tile * tile / threads; ++i) {
    const int k = i * (threads / tile) + thread / tile;
    if (k0 + k < p.depth && row0 + column < p.side)
      turned[k][column] = __ldcs(from + (k0 + k) * p.depth_stride + row0 + column);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < tile * tile / 4 / threads; ++i) {
    const int row = i * (threads / 16) + thread / 16, k = thread % 16 * 4;
    const long long left = p.depth - k0 - k;
    if (row0 + row >= p.side || left <= 0) continue;
    float values[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = turned[k + j][row];
    write_parts(p, batch, row0 + row, k0 + k, values, left < 4 ? static_cast<int>(left) : 4);
  }
}

}  // namespace

void gemm_split(const Tensor& from, float* to, int64_t ld, Stream stream) {
  const Split p{pointer<float>(from),
                to,
                from.strides()[1],
                from.strides()[2],
                from.strides()[0],
                from.size(1),
                from.size(2),
                ld,
                static_cast<int>(from.size(0))};
  if (p.depth_stride == 1 || p.depth == 1) {
    const bool wide = p.side_stride % 4 == 0 && p.batch_stride % 4 == 0 &&
                      reinterpret_cast<uintptr_t>(p.from) % 16 == 0;
    const int64_t blocks = ceil_div(from.size(0) * p.side * ((p.depth + 3) / 4), int64_t{threads});
    split_along<<<static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 20)), threads, 0,
                  native(stream)>>>(p, wide);
  } else {
    const auto down = static_cast<int>(ceil_div(from.size(1), 64));
    const auto along = static_cast<int>(ceil_div(from.size(2), 64));
    const int64_t blocks = from.size(0) * down * along;
    BS_CHECK(blocks < (int64_t{1} << 31), "gemm: {} tiles of an operand are too many", blocks);
    split_across<<<static_cast<unsigned>(blocks), threads, 0, native(stream)>>>(p, down, along);
  }
  BS_CUDA_CHECK_LAUNCH("gemm_split");
}

}  // namespace bs::cuda
