#pragma once
// What the block-sparse products do with finished sums before they are stored: an emitted
// `struct Epilogue` (kernels/gemm_epilogue.h), or nothing.
#include <bs/kernels/cuda/device/gemm/gemm_epilogue.cuh>

namespace bs::cuda::device {

/// Sums are stored as they are.
struct NoEpilogue {
  static constexpr int operands = 0, reductions = 0;
};

/// Of blocks of `block`: see reduced_side.
template <int block>
inline constexpr int side_of = block < reduced_side ? block : reduced_side;

/// A warp's 16 or 32 rows (or the first 8) by 8 or 16 columns of a result, of which `rows` by
/// `columns` are inside, or none where these are not positive. A lane's pair i is in row i % M of
/// its M, and is number i / M of its pairs along that.
struct EpiloguePatch {
  int row, column, batch;
  int rows, columns;
};

/// Which rows of a patch of `side` a lane has: two, 8 from each other.
template <int side>
struct LaneRows {
  static constexpr int count = 2, height = side;
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int row(int i) { return lane() / 4 + i * 8; }
};

/// What an epilogue reduces of a patch of `side` columns, and of patches side by side.
template <class Epilogue, int side, class Rows = LaneRows<side>, int R = Epilogue::reductions>
class PatchTotals {
  using W = typename Epilogue::Compute;
  static constexpr int M = Rows::count, N = side / 4;  // a lane's rows and columns

 public:
  __device__ explicit PatchTotals(const Rows& own = Rows()) : own_(own) {
    clear_rows();
    clear_columns();
  }

  /// Adds what was computed of pair `i`.
  __device__ void take(int i, const EpiloguePatch& at, const W (&reduced)[R][2]) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        // What is outside counts for no column, or no row; its own rows or columns are not stored.
        const bool inside = Epilogue::over_columns(r)
                                ? own_.lane() % 4 * 2 + i / M * 8 + v < at.columns
                                : own_.row(i % M) < at.rows;
        W& total = Epilogue::over_columns(r) ? rows_[r][i % M] : columns_[r][i / M * 2 + v];
        total = both(r, total, inside ? reduced[r][v] : nothing(r));
      }
  }

  // Both are for whole warps. Lanes exchange halves of what they have: at the end each has less,
  // but of more lanes.

  /// Puts the totals of the patch's columns away.
  __device__ void store_columns(const GemmOperand* partials, const EpiloguePatch& at) {
    const int lane = own_.lane();
    const int own = lane / (32 / N);
    const int column = kept_here(own / 2 * 8 + own % 2 + lane % 4 * 2);
    const bool stores = lane % (32 / N) < 4 && column < at.columns && at.rows > 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (Epilogue::over_columns(r)) continue;
      const W total = over_lanes<16, 4>(r, columns_[r]);
      const GemmOperand& o = partials[r];
      W* const to =
          static_cast<W*>(o.data) + at.batch * o.batch + kept_here(at.row / Rows::height) * o.row;
      if (stores) to[at.column + column] = total;
    }
    clear_columns();
  }
  /// Puts those of the rows away, over all columns since the last time, which are part `part` of
  /// the row.
  __device__ void store_rows(const GemmOperand* partials, const EpiloguePatch& at, int part) {
    constexpr int alike = 4 / M;  // lanes that have the same total
    const int row = kept_here(own_.row(own_.lane() % 4 / alike));
    const bool stores = own_.lane() % alike == 0 && row < at.rows;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (!Epilogue::over_columns(r)) continue;
      const W total = over_lanes<2, 1>(r, rows_[r]);
      const GemmOperand& o = partials[r];
      W* const to = static_cast<W*>(o.data) + at.batch * o.batch + kept_here(part) * o.column;
      if (stores) to[at.row + row] = total;
    }
    clear_rows();
  }

 private:
  /// Places are computed where they are used, and not once for all tiles: registers are scarce.
  __device__ static int kept_here(int x) {
    asm volatile("" : "+r"(x));
    return x;
  }
  __device__ static W nothing(int r) {
    return Epilogue::is_max(r) ? -static_cast<W>(__int_as_float(0x7f800000)) : W(0);
  }
  __device__ static W both(int r, W x, W y) { return reduce_pair(x, y, Epilogue::is_max(r)); }

  /// The total, over lanes that differ in bits `first` down to `last`, of one of the values: which
  /// one, the highest of these bits tell.
  template <int first, int last, int count>
  __device__ W over_lanes(int r, W (&values)[count]) const {
    int step = first;
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2, step /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const bool upper = (own_.lane() & step) != 0;
        const W given = upper ? values[i] : values[i + half];
        values[i] =
            both(r, upper ? values[i + half] : values[i], __shfl_xor_sync(~0U, given, step));
      }
#pragma unroll
    for (; step >= last; step /= 2)
      values[0] = both(r, values[0], __shfl_xor_sync(~0U, values[0], step));
    return values[0];
  }

  __device__ void clear_rows() {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int i = 0; i < M; ++i) rows_[r][i] = nothing(r);
  }
  __device__ void clear_columns() {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int i = 0; i < N; ++i) columns_[r][i] = nothing(r);
  }

  Rows own_;
  W rows_[R][M], columns_[R][N];
};

template <class Epilogue, int side, class Rows>
class PatchTotals<Epilogue, side, Rows, 0> {
 public:
  __device__ explicit PatchTotals(const Rows& = Rows()) {}
  template <class W>
  __device__ void take(int, const EpiloguePatch&, const W&) {}
  __device__ void store_columns(const GemmOperand*, const EpiloguePatch&) {}
  __device__ void store_rows(const GemmOperand*, const EpiloguePatch&, int) {}
};

/// D, and what is staged beside it, of pair `pair` of a patch: two neighbouring sums of a row. `at`
/// is their place in rows and columns of a matrix, any one inside where they are not, for at least
/// one of them; `in` that in tensors of D's shape, for as many as are inside.
template <class Epilogue, int staged, class Sum, class Totals>
__device__ __forceinline__ void finish_pair(const BlockSparseEpilogueArguments& e,
                                            const EpiloguePlace& at, const EpiloguePlace& in,
                                            const Sum (&sums)[2], Sum (&out)[staged][2], int pair,
                                            const EpiloguePatch& patch, Totals& totals) {
  constexpr int V = 2;
  if constexpr (same_type<Epilogue, NoEpilogue>) {
#pragma unroll
    for (int v = 0; v < V; ++v) out[0][v] = sums[v];
  } else {
    static_assert(same_type<Sum, typename Epilogue::Compute>);
    Sum reduced[Epilogue::reductions > 0 ? Epilogue::reductions : 1][V];
    Epilogue::template apply<V>(e.scalars, e.operands, at, in, sums, reduced,
                                KeepStored<Sum, staged, V>{out});
    totals.take(pair, patch, reduced);
  }
}

}  // namespace bs::cuda::device
