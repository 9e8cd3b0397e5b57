#include <bs/kernels/cuda/gemm/gemm_split.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/ptx/mma.cuh>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

namespace {

constexpr int threads = 256, tile = 64;
constexpr int fours = tile / 4;                // of a line of a tile, a thread each
constexpr int turns = tile * fours / threads;  // of all threads for the lines of a tile
constexpr int lines_at_once = threads / fours;

/// An operand, which CTAs split by tiles of 64 of the side x 64 of the depth.
struct Split {
  const float* from;
  float* to;
  long long side_stride, depth_stride, batch_stride;
  long long ld;
  int side, depth;
  int down, along;  ///< tiles of the side, of the depth
  bool wide;        ///< four of the depth can be loaded at once
};
struct Splits {
  Split of[2];
  int tiles;  ///< of the first one
};

/// Four neighbours of the depth, those there are.
__device__ void load_four(const Split& p, const float* from, int count, float (&x)[4]) {
  if (p.wide && count >= 4) {
    const float4 four = __ldcs(reinterpret_cast<const float4*>(from));
    x[0] = four.x;
    x[1] = four.y;
    x[2] = four.z;
    x[3] = four.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = i < count ? from[i] : 0;
}

/// Writes the parts of four neighbours, of which `count` are in the matrix.
__device__ void write_parts(const Split& p, long long batch, int row, int k, const float (&x)[4],
                            int count) {
  float large[4], small[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto parts = device::Mma<float>::split(x[i]);
    large[i] = __uint_as_float(parts.large);
    small[i] = __uint_as_float(parts.small);
  }
  float* const to = p.to + (2 * batch * p.side + row) * p.ld + k;
  if (count >= 4) {
    *reinterpret_cast<float4*>(to) = {large[0], large[1], large[2], large[3]};
    *reinterpret_cast<float4*>(to + p.side * p.ld) = {small[0], small[1], small[2], small[3]};
    return;
  }
  for (int i = 0; i < count; ++i) {
    to[i] = large[i];
    to[p.side * p.ld + i] = small[i];
  }
}

/// Both operands at once, since either alone is over before all its CTAs are at work. Where the
/// depth is not contiguous, a tile is turned in shared memory.
__global__ void __launch_bounds__(threads) split(const __grid_constant__ Splits both) {
  __shared__ float turned[tile][tile + 1];  // [depth][side]
  const bool second = static_cast<int>(blockIdx.x) >= both.tiles;
  const Split& p = both.of[second];
  const int cta = static_cast<int>(blockIdx.x) - (second ? both.tiles : 0);
  const int in_batch = cta % (p.down * p.along), thread = static_cast<int>(threadIdx.x);
  const long long batch = cta / (p.down * p.along);
  const int row0 = in_batch / p.along * tile + thread / fours;
  const int k0 = in_batch % p.along * tile, k = thread % fours * 4;
  const float* const from = p.from + batch * p.batch_stride;
  const bool across = p.depth_stride != 1;
  if (across) {
    const int column = thread % tile, row = in_batch / p.along * tile + column;
#pragma unroll
    for (int i = 0; i < tile * tile / threads; ++i) {
      const int line = i * (threads / tile) + thread / tile;
      if (k0 + line < p.depth && row < p.side)
        turned[line][column] = __ldcs(from + (k0 + line) * p.depth_stride + row);
    }
    __syncthreads();
  }
  float values[turns][4];
  const int count = p.depth - k0 - k;
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    const int row = row0 + i * lines_at_once;
    if (across) {
#pragma unroll
      for (int j = 0; j < 4; ++j) values[i][j] = turned[k + j][row % tile];
    } else if (row < p.side) {
      load_four(p, from + row * p.side_stride + k0 + k, count, values[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    const int row = row0 + i * lines_at_once;
    if (row < p.side && count > 0) write_parts(p, batch, row, k0 + k, values[i], count);
  }
}

int64_t tiles_of(const Split& p, const Tensor& from) { return from.size(0) * p.down * p.along; }

Split describe(const GemmSplit& x) {
  const Tensor& from = x.from;
  BS_CHECK(std::max(from.size(1), from.size(2)) <= INT32_MAX,
           "gemm: an operand of {} x {} is too large", from.size(1), from.size(2));
  Split p{.from = pointer<float>(from),
          .to = x.to,
          .side_stride = from.strides()[1],
          .depth_stride = from.size(2) == 1 ? 1 : from.strides()[2],
          .batch_stride = from.strides()[0],
          .ld = x.ld,
          .side = static_cast<int>(from.size(1)),
          .depth = static_cast<int>(from.size(2)),
          .down = static_cast<int>(ceil_div(from.size(1), tile)),
          .along = static_cast<int>(ceil_div(from.size(2), tile)),
          .wide = false};
  p.wide = p.depth_stride == 1 && p.side_stride % 4 == 0 && p.batch_stride % 4 == 0 &&
           reinterpret_cast<uintptr_t>(p.from) % 16 == 0;
  return p;
}

}  // namespace

void gemm_split(const GemmSplit& a, const GemmSplit& b, Stream stream) {
  Splits both{{describe(a), describe(b)}, 0};
  const int64_t tiles = tiles_of(both.of[0], a.from), all = tiles + tiles_of(both.of[1], b.from);
  BS_CHECK(all < (int64_t{1} << 31), "gemm: {} tiles of both operands are too many", all);
  if (all == 0) return;
  both.tiles = static_cast<int>(tiles);
  split<<<static_cast<unsigned>(all), threads, 0, native(stream)>>>(both);
  BS_CUDA_CHECK_LAUNCH("gemm_split");
}

}  // namespace bs::cuda
