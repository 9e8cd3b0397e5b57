#pragma once
// What the block-sparse products do with finished sums before they are stored: an emitted
// `struct Epilogue` (kernels/gemm_epilogue.h), or nothing.
#include <bs/kernels/cuda/device/gemm_epilogue.cuh>

namespace bs::cuda::device {

/// Sums are stored as they are.
struct NoEpilogue {
  static constexpr int operands = 0, reductions = 0;
};

/// Of blocks of `block`: see reduced_side.
template <int block>
inline constexpr int side_of = block < reduced_side ? block : reduced_side;

/// What an epilogue reduces of a piece of a warp's sums, 16 rows (or the first 8) by `side`
/// columns: a number for each of the rows, or of the columns. Pair i of a lane's is one of row i %
/// 2 of its two and of pair i / 2 of its columns.
template <class Epilogue, int side, int R = Epilogue::reductions>
class PieceTotals {
  using W = typename Epilogue::Compute;

 public:
  __device__ PieceTotals() {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        rows_[r][i] = nothing(r);
#pragma unroll
        for (int c = 0; c < side / 8; ++c) columns_[r][c][i] = nothing(r);
      }
  }

  /// Adds what was computed of pair `i`, which lies `in` tensors of D's shape.
  __device__ void take(int i, const EpiloguePlace& in, const W (&reduced)[R][2]) {
    if (i < 2) row_in_[i] = in;
    if (i % 2 == 0) column_in_[i / 2] = in;
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        W& total = Epilogue::over_columns(r) ? rows_[r][i % 2] : columns_[r][i / 2][v];
        total = both(r, total, v < in.count ? reduced[r][v] : nothing(r));
      }
  }

  /// Behind the last pair, called by the whole warp.
  __device__ void store(const GemmOperand* partials) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const GemmOperand& o = partials[r];
      if (Epilogue::over_columns(r)) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const W total = over_lanes<1, 4>(r, rows_[r][i]);
          const EpiloguePlace& in = row_in_[i];
          if (lane % 4 == 0 && in.count > 0) put(o, in, in.row, in.column / side, total);
        }
      } else {
#pragma unroll
        for (int i = 0; i < side / 4; ++i) {
          const W total = over_lanes<4, 32>(r, columns_[r][i / 2][i % 2]);
          const EpiloguePlace& in = column_in_[i / 2];
          if (lane < 4 && i % 2 < in.count) put(o, in, in.row / side, in.column + i % 2, total);
        }
      }
    }
  }

 private:
  __device__ static W nothing(int r) {
    return Epilogue::is_max(r) ? -static_cast<W>(__int_as_float(0x7f800000)) : W(0);
  }
  __device__ static W both(int r, W x, W y) { return reduce_pair(x, y, Epilogue::is_max(r)); }
  template <int from, int to>
  __device__ static W over_lanes(int r, W total) {
#pragma unroll
    for (int step = from; step < to; step *= 2)
      total = both(r, total, __shfl_xor_sync(~0U, total, step));
    return total;
  }
  __device__ static void put(const GemmOperand& o, const EpiloguePlace& in, int row, int column,
                             W total) {
    static_cast<W*>(o.data)[in.batch * o.batch + row * o.row + column * o.column] = total;
  }

  W rows_[R][2], columns_[R][side / 8][2];
  EpiloguePlace row_in_[2], column_in_[side / 8];
};

template <class Epilogue, int side>
class PieceTotals<Epilogue, side, 0> {
 public:
  template <class W>
  __device__ void take(int, const EpiloguePlace&, const W&) {}
  __device__ void store(const GemmOperand*) {}
};

/// D, and what is staged beside it, of pair `pair` of a piece: two neighbouring sums of a row. `at`
/// is their place in rows and columns of a matrix, any one inside where they are not, for at least
/// one of them; `in` that in tensors of D's shape, for as many as are inside.
template <class Epilogue, int staged, class Sum, class Totals>
__device__ __forceinline__ void finish_pair(const BlockSparseEpilogueArguments& e,
                                            const EpiloguePlace& at, const EpiloguePlace& in,
                                            const Sum (&sums)[2], Sum (&out)[staged][2], int pair,
                                            Totals& totals) {
  constexpr int V = 2;
  if constexpr (same_type<Epilogue, NoEpilogue>) {
#pragma unroll
    for (int v = 0; v < V; ++v) out[0][v] = sums[v];
  } else {
    static_assert(same_type<Sum, typename Epilogue::Compute>);
    Sum reduced[Epilogue::reductions > 0 ? Epilogue::reductions : 1][V];
    Epilogue::template apply<V>(e.scalars, e.operands, at, in, sums, reduced,
                                KeepStored<Sum, staged, V>{out});
    totals.take(pair, in, reduced);
  }
}

}  // namespace bs::cuda::device
