#pragma once
// A tile of sums from two streams of operand tiles: what every block-sparse product here is made
// of. The callers differ in where the elements lie (their loaders) and where the sums go.
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/async_copy.cuh>
#include <bs/kernels/cuda/device/mma.cuh>

namespace bs::cuda::device {

/// Neighbours that one 16-byte copy moves: `count` of them are there, from `data` on.
template <class T>
struct Chunk {
  const T* data;
  int count;
};

/// Compile-time shape of a CTA's work. A is Rows x Depth, B is Depth x Cols a stage; `a_along_k`
/// and `b_along_k` tell whether neighbours along the depth lie side by side in memory; Multiply is
/// one of mma.cuh.
template <class T, int Rows, int Cols, int Depth, int Stages, int WarpRows, int WarpCols,
          bool a_along_k, bool b_along_k, class Multiply = Mma<T>>
struct TileProduct {
  using Element = T;
  static constexpr int rows = Rows, cols = Cols, depth = Depth;
  static constexpr bool a_is_along_k = a_along_k;
  static constexpr bool b_is_along_k = b_along_k;
  static constexpr int threads = 32 * WarpRows * WarpCols;
  static constexpr int vector = 16 / static_cast<int>(sizeof(T));
  // Rows of a tile in shared memory are padded so that a fragment's reads fall into distinct banks:
  // by 16 bytes, but by 32 where the lanes of a fragment of 32-bit elements walk across the rows.
  static constexpr int padding(bool along_k) { return sizeof(T) == 4 && !along_k ? 8 : vector; }
  static constexpr int a_ld = (a_along_k ? Depth : Rows) + padding(a_along_k);
  static constexpr int b_ld = (b_along_k ? Depth : Cols) + padding(b_along_k);
  static constexpr int a_elements = (a_along_k ? Rows : Depth) * a_ld;
  static constexpr int b_elements = (b_along_k ? Cols : Depth) * b_ld;
  static constexpr int stage_elements = a_elements + b_elements;
  // The finished tile passes through the same memory, so that it can be written out in wide pieces.
  static constexpr int c_elements = Rows * (Cols + vector) > Cols*(Rows + vector)
                                        ? Rows*(Cols + vector)
                                        : Cols*(Rows + vector);
  static constexpr int shared_elements =
      Stages * stage_elements > c_elements ? Stages* stage_elements : c_elements;
  static constexpr int shared_bytes = shared_elements * static_cast<int>(sizeof(T));

  using M = Multiply;
  static constexpr int m_tiles = Rows / WarpRows / M::rows;
  static constexpr int n_tiles = Cols / WarpCols / M::cols;
  static_assert(m_tiles * WarpRows * M::rows == Rows && n_tiles * WarpCols * M::cols == Cols);
  static_assert(Depth % M::depth == 0);

  typename M::Sum sums[m_tiles][n_tiles][M::elements];

  __device__ TileProduct() {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
      for (int n = 0; n < n_tiles; ++n)
#pragma unroll
        for (int i = 0; i < M::elements; ++i) sums[m][n][i] = 0;
  }

  /// Brings `Lines` lines of `Length` neighbours each. `chunk(line, at)` says where the neighbours
  /// from `at` on lie; `aligned`: chunks are whole or empty, and lie at multiples of 16 bytes.
  template <int Lines, int Length, class Locate>
  __device__ static void load(T* shared, int ld, bool aligned, const Locate& chunk) {
    constexpr int per_line = Length / vector;
    static_assert(per_line * vector == Length);
    for (int i = threadIdx.x; i < Lines * per_line; i += threads) {
      const int line = i / per_line;
      const int at = i % per_line * vector;
      const Chunk<T> c = chunk(line, at);
      T* to = shared + line * ld + at;
      if (aligned) {
        copy_async_16(to, c.data, c.count > 0);
      } else {
#pragma unroll
        for (int v = 0; v < vector; ++v) to[v] = v < c.count ? c.data[v] : narrow<T>(0);
      }
    }
  }

  /// Adds the products of `steps` stages. `a(step, side, k)` and `b(step, side, k)` locate the
  /// chunk of row or column `side` and depth `k` of a step.
  template <class LoadA, class LoadB>
  __device__ void run(T* shared, int steps, bool a_aligned, bool b_aligned, const LoadA& a,
                      const LoadB& b) {
    const auto fetch = [&](int step) {
      if (step < steps) {
        T* stage = shared + step % Stages * stage_elements;
        load<a_along_k ? Rows : Depth, a_along_k ? Depth : Rows>(
            stage, a_ld, a_aligned,
            [&](int line, int at) { return a_along_k ? a(step, line, at) : a(step, at, line); });
        load<b_along_k ? Cols : Depth, b_along_k ? Depth : Cols>(
            stage + a_elements, b_ld, b_aligned,
            [&](int line, int at) { return b_along_k ? b(step, line, at) : b(step, at, line); });
      }
      commit_copies();  // an empty group keeps the count of groups in step
    };
    // One loop for filling the pipeline and for running it: the loaders are long, and stand in the
    // code once.
    for (int step = 1 - Stages; step < steps; ++step) {
      if (step >= 0) {
        wait_copies<Stages - 2>();
        // Everybody's copies of this stage have landed, and nobody reads the one fetched next.
        __syncthreads();
      }
      fetch(step + Stages - 1);
      if (step >= 0) accumulate(shared + step % Stages * stage_elements);
    }
    wait_copies<0>();
    __syncthreads();
  }

  __device__ void accumulate(const T* stage) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int m0 = warp % WarpRows * (Rows / WarpRows);
    const int n0 = warp / WarpRows * (Cols / WarpCols);
    const T* a = stage;
    const T* b = stage + a_elements;
#pragma unroll
    for (int k = 0; k < Depth; k += M::depth) {
      typename M::A fa[m_tiles];
      typename M::B fb[n_tiles];
#pragma unroll
      for (int m = 0; m < m_tiles; ++m) {
        const int at = m0 + m * M::rows;
        M::template load_a<a_along_k>(fa[m], a_along_k ? a + at * a_ld + k : a + k * a_ld + at,
                                      a_ld, lane);
      }
#pragma unroll
      for (int n = 0; n < n_tiles; ++n) {
        const int at = n0 + n * M::cols;
        M::template load_b<b_along_k>(fb[n], b_along_k ? b + at * b_ld + k : b + k * b_ld + at,
                                      b_ld, lane);
      }
#pragma unroll
      for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) M::multiply(sums[m][n], fa[m], fb[n]);
    }
  }

  /// Calls f(row, column, sums) on every two neighbours of a row of the tile.
  template <class F>
  __device__ void each_pair(const F& f) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int m0 = warp % WarpRows * (Rows / WarpRows);
    const int n0 = warp / WarpRows * (Cols / WarpCols);
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
      for (int n = 0; n < n_tiles; ++n)
#pragma unroll
        for (int i = 0; i < M::elements; i += 2) {
          typename M::Sum pair[2] = {sums[m][n][i], sums[m][n][i + 1]};
          f(m0 + m * M::rows + M::row(lane, i), n0 + n * M::cols + M::col(lane, i), pair);
          sums[m][n][i] = pair[0];
          sums[m][n][i + 1] = pair[1];
        }
  }

  /// Puts the rounded sums into shared memory, row by row (or column by column), `c_ld` apart.
  template <bool by_rows>
  static constexpr int c_ld = (by_rows ? Cols : Rows) + vector;
  template <bool by_rows>
  __device__ void stage_result(T* shared) const {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int m0 = warp % WarpRows * (Rows / WarpRows);
    const int n0 = warp / WarpRows * (Cols / WarpCols);
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
      for (int n = 0; n < n_tiles; ++n)
#pragma unroll
        for (int i = 0; i < M::elements; ++i) {
          const int row = m0 + m * M::rows + M::row(lane, i);
          const int col = n0 + n * M::cols + M::col(lane, i);
          shared[by_rows ? row * c_ld<true> + col : col * c_ld<false> + row] =
              narrow<T>(sums[m][n][i]);
        }
    __syncthreads();
  }
};

}  // namespace bs::cuda::device
