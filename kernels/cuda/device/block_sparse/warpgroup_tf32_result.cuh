#pragma once
// The results of the f32 kernels of wgmma: what a warpgroup does with its sums, which are those of
// the transpose.
#include <bs/kernels/cuda/device/block_sparse/block_sparse_epilogue.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

/// Of 32 neighbouring columns of the wide operand and of the result, which a warp has of 128, a
/// lane has four, rows to an epilogue: `lane / 4` of each 8 or, where columns lie along lines, four
/// neighbours, so that one read brings them. There lanes exchange places, to meet each bank once,
/// in lines of `side` columns.
template <bool along_k, int side = 32>
struct LaneColumns {
  static constexpr int count = 4, height = tf32_reduced_side;
  static constexpr int apart = along_k ? 8 : 1;
  int own_lane;
  /// Which four neighbours a lane has.
  __device__ static int place(int lane) {
    return side == 32 ? lane / 4 % 2 * 4 + lane / 8
                      : lane / 16 * 4 + lane / 4 % 2 * 2 + lane / 8 % 2;
  }
  __device__ int lane() const { return own_lane; }
  __device__ int row(int i) const {
    return i * apart + (along_k ? own_lane / 4 : place(own_lane) * 4);
  }
};

/// C: that of WarpgroupTf32.
template <class C>
struct WarpgroupTf32Result {
  using Epilogue = typename C::Epilogue;
  static constexpr int n = C::n, wide = C::wide, staged = C::staged;
  using Sums = float[wide][n / 2];
  using Columns = LaneColumns<C::wide_along_k>;
  using Totals = PatchTotals<Epilogue, reduced_side, Columns>;

  /// Where such columns go.
  struct Place {
    long long first;  ///< element, row 0 of the first of them
    long long step;   ///< from a row to the next, or by columns from a column
    int left;         ///< columns that are inside
    bool quads;       ///< four of them at a time
    // For an epilogue, transposed: where row 0 of the first is in a matrix, and in tensors of the
    // result's shape; and the last of the columns that these have, which may be before the first.
    EpiloguePlace at, in;
    int last;
  };

  // Sums are finished and written some rows at a time. Behind an epilogue, which is long, that is a
  // loop; registers have no index, so that only what takes sums out of them stands there for each.
  static constexpr bool finishes = !same_type<Epilogue, NoEpilogue>;
  static constexpr int taken_pairs = wide * n > 128 ? 2 : 4;  // what registers are left for
  static constexpr int own_rows = n / C::rows;  // those that lie together: all, or a block row
  static constexpr int rounds = own_rows / 8 / taken_pairs;
  static constexpr int all_rounds = wide / 2 * C::rows * rounds;
  using Chunk = float[taken_pairs][4][2];  // pairs of rows of a lane's columns

  /// The sums of chunk `number`.
  __device__ static void take_chunk(const Sums& sums, int number, Chunk& chunk) {
#pragma unroll
    for (int k = 0; k < all_rounds; ++k) {
      if (k != number) continue;
#pragma unroll
      for (int j = 0; j < taken_pairs; ++j)
#pragma unroll
        for (int i = 0; i < 8; ++i)
          chunk[j][i / 2][i % 2] = sums[k / (C::rows * rounds) * 2 + i / 4]
                                       [(k % (C::rows * rounds) * taken_pairs + j) * 4 + i % 4];
    }
  }

  /// What a chunk, which begins at `row` of the item's, becomes: of each result that leaves with
  /// it.
  __device__ static __forceinline__ void finish(const BlockSparseEpilogueArguments& e,
                                                const Chunk& chunk, int row, const Place& place,
                                                const Columns& own, Totals& totals,
                                                Chunk (&out)[staged]) {
    const int lane_row = own.lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < taken_pairs; ++j) {
      const EpiloguePatch patch{place.in.row, place.in.column + row + j / 2 * 16, place.in.batch,
                                place.left, reduced_side};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = min(own.row(i), place.last), at_row = row + j * 8 + lane_row;
        const EpiloguePlace at{place.at.row + column, place.at.column + at_row, place.at.batch, 2};
        const EpiloguePlace in{place.in.row + column, place.in.column + at_row, place.in.batch,
                               own.row(i) < place.left ? 2 : 0};
        float done[staged][2];
        finish_pair<Epilogue, staged>(e, at, in, chunk[j][i], done, j % 2 * 4 + i, patch, totals);
#pragma unroll
        for (int o = 0; o < staged; ++o) {
          out[o][j][i][0] = done[o][0];
          out[o][j][i][1] = done[o][1];
        }
      }
      if (j % 2 == 1) totals.store_columns(e.operands + Epilogue::operands, patch);
    }
  }

  /// Puts two rows of a lane's columns to `to`, where the first of both begins.
  template <bool by_columns>
  __device__ static void put(float* to, const Place& place, const Columns& own,
                             const float (&x)[4][2]) {
    if constexpr (by_columns) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (own.row(i) < place.left)
          *reinterpret_cast<float2*>(to + i * Columns::apart * place.step) =
              make_float2(x[i][0], x[i][1]);
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row, to += place.step) {
        if (!C::wide_along_k && place.quads) {
          if (own.row(0) < place.left)
            *reinterpret_cast<float4*>(to) =
                make_float4(x[0][row], x[1][row], x[2][row], x[3][row]);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (own.row(i) < place.left) to[i * Columns::apart] = x[i][row];
        }
      }
    }
  }

  /// Finishes and writes the sums; `place(q, warp, chunk)` tells where those of the warp's chunk of
  /// the `q`th 128 columns of the warpgroup go, of which of the rows that lie together.
  template <bool by_columns, class Params, class PlaceOf>
  __device__ static void write(const Params& p, const Sums& sums, const PlaceOf& place_of_warp) {
    const int thread = static_cast<int>(fresh_thread());
    const Columns own{thread % 32};
    Totals totals(own);
    Place place;
    long long row_step = 0, to = 0;
#pragma unroll(finishes ? 1 : all_rounds)
    for (int k = 0; k < all_rounds; ++k) {
      if (k % rounds == 0) {
        place = place_of_warp(k / (C::rows * rounds), thread % warpgroup_size / 32,
                              k / rounds % C::rows);
        row_step = by_columns ? 1 : place.step;
        to = place.first + own.row(0) * (by_columns ? place.step : 1) +
             own.lane() % 4 * 2 * row_step;
      }
      Chunk chunk, out[staged];
      take_chunk(sums, k, chunk);
      finish(p.epilogue, chunk, k % rounds * taken_pairs * 8, place, own, totals, out);
      // Moved on from row to row: many addresses at a time would not fit the registers.
#pragma unroll
      for (int j = 0; j < taken_pairs; ++j) {
        put<by_columns>(p.result + to, place, own, out[0][j]);
        if constexpr (staged == 2) put<by_columns>(p.beside + to, place, own, out[1][j]);
        to += 8 * row_step;
        if constexpr (!by_columns) asm volatile("" : "+l"(to));
      }
      if (k % rounds == rounds - 1)
        totals.store_rows(p.epilogue.operands + Epilogue::operands,
                          {place.in.row, place.in.column, place.in.batch, place.left, own_rows},
                          place.in.column / own_rows);
    }
  }
};

}  // namespace bs::cuda::device
