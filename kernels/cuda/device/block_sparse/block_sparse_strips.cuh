#pragma once
// What the warpgroup kernels of the block-sparse products share: places in a batch, and the way
// from sums in registers to tiles in global memory.
#include <bs/kernels/cuda/device/block_sparse/block_sparse_epilogue.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>
#include <bs/kernels/cuda/device/ptx/bulk_copy.cuh>
#include <bs/kernels/cuda/device/ptx/half.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

/// The index along each axis.
struct BatchIndex {
  int at[3];

  __device__ BatchIndex(const BatchAxes& axes, int index) : at{0, 0, 0} {
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      at[axis] = index % axes.shape[axis];
      index /= axes.shape[axis];
    }
  }
  /// The index within the batch together with that within the sum.
  __device__ BatchIndex operator+(const BatchIndex& o) const {
    BatchIndex both = *this;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) both.at[axis] += o.at[axis];
    return both;
  }
  __device__ int along(const BatchSteps& steps, int axis) const {
    return at[axis] * steps.step[axis];
  }
  __device__ int dot(const BatchSteps& steps) const {
    return at[0] * steps.step[0] + at[1] * steps.step[1] + at[2] * steps.step[2];
  }
};

__device__ inline int count(const BatchAxes& axes) {
  return axes.shape[0] * axes.shape[1] * axes.shape[2];
}

/// Has L2 bring the lists, a line for each thread of the grid; what is more than these are is left.
__device__ inline void prefetch(const ListMemory& lists) {
  const auto line = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (line < lists.lines[i])
      asm volatile(
          "prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(lists.from[i]) + line * 128LL));
}

/// Called once by each CTA that found no more work: the last one puts the counters back to zero.
__device__ inline void leave_work(int* counters) {
  if (atomicAdd(counters + 1, 1) + 1 == static_cast<int>(gridDim.x)) counters[0] = counters[1] = 0;
}

/// Where in a 64-row tile a lane's pair `pair` of 16 neighbouring columns lies: two sums side by
/// side.
struct PairPlace {
  int row, column;
  __device__ explicit PairPlace(int pair) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    row = static_cast<int>(threadIdx.x) % warpgroup_size / 32 * 16 + lane / 4 + pair % 2 * 8;
    column = pair / 2 * 8 + lane % 4 * 2;
  }
};

/// Writes `Cols` columns of a warpgroup's 64-row tile to shared memory as boxes of `Line` bytes by
/// 64 lines (rows), in the copy engine's pattern for such lines. `values(j, r)` gives the packed
/// pairs of columns [16 j, 16 j + 16), of `Staged` tiles, which go `apart` bytes from each other.
template <int Line, int Cols, int Staged, class Values>
__device__ inline void stage_rows(unsigned shared, unsigned apart, const Values& values) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % warpgroup_size / 32;
  constexpr int chunks = Line / 16;  // of 8 columns, in a line
  constexpr int span = 128 / Line;   // lines that share one place in the pattern
  const int row = warp * 16 + lane % 16;
  const unsigned line = shared + static_cast<unsigned>(row * Line);
  const int exchange = row / span % chunks;
#pragma unroll
  for (int j = 0; j < Cols / 16; ++j) {  // 16 columns at a time
    unsigned r[Staged][4];
    values(j, r);
    const int chunk = j * 2 + lane / 16;
    const unsigned at = line + static_cast<unsigned>(chunk / chunks * 64 * Line +
                                                     ((chunk % chunks) ^ exchange) * 16);
#pragma unroll
    for (int i = 0; i < Staged; ++i) store_matrix_x4<false>(at + i * apart, r[i]);
  }
}

/// The same with lines along the columns of the tile, in boxes of as many rows as fill `Line`
/// bytes by `Cols` lines: line c holds the box's rows of column c.
template <int Line, int Cols, int Staged, class Values>
__device__ inline void stage_columns(unsigned shared, unsigned apart, const Values& values) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % warpgroup_size / 32;
  constexpr int chunks = Line / 16;  // of 8 rows, in a line
  constexpr int span = 128 / Line;   // lines that share one place in the pattern
  const int eighth = warp * 2 + lane / 8 % 2, chunk = (eighth % chunks) ^ (lane % 8 / span);
  const unsigned at =
      shared + static_cast<unsigned>(eighth / chunks * Cols * Line +
                                     (lane / 16 * 8 + lane % 8) * Line + chunk * 16);
#pragma unroll
  for (int j = 0; j < Cols / 16; ++j) {
    unsigned r[Staged][4];
    values(j, r);
#pragma unroll
    for (int i = 0; i < Staged; ++i)
      store_matrix_x4<true>(at + static_cast<unsigned>(j * 16 * Line) + i * apart, r[i]);
  }
}

/// Boxes as stage_rows makes them, but each turned: line c of one, `Side` rows long and as many
/// columns wide, holds the rows of column c.
template <int Side, int Cols, class Values>
__device__ inline void stage_turned(unsigned shared, const Values& values) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % warpgroup_size / 32;
  constexpr int chunks = Side / 8;  // of 8 rows, in a line
  constexpr int span = 64 / Side;   // lines that share one place in the pattern
  const int row = warp * 16 + lane / 8 % 2 * 8;
  const int line = row / Side * Side + lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int j = 0; j < Cols / 16; ++j) {
    unsigned r[1][4];
    values(j, r);
    const int own = j * 16 / Side * 64 + j * 16 % Side + line;
    const int chunk = row % Side / 8 ^ own / span % chunks;
    store_matrix_x4<true>(shared + static_cast<unsigned>(own * Side * 2 + chunk * 16), r[0]);
  }
}

}  // namespace bs::cuda::device
