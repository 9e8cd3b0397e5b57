#pragma once
// What the kernels of fused attention share. A CTA of four warps keeps a tile of rows (queries, or
// keys for the gradients of keys and values), a warp's share of them being the rows of one
// instruction of the tensor cores, and meets columns (keys, or queries) tile by tile, gathered from
// the pieces of a BlockList. Scores live in registers, from a product straight into the next.
#include <bs/kernels/cuda/device/attention/attention_single.cuh>
#include <bs/kernels/cuda/device/attention/block_list.cuh>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda::device {

/// Two fragments side by side along the columns.
template <class T, bool k_contiguous>
__device__ inline void load_b_pair(typename Mma<T>::B (&f)[2], const T* b, int ld, int lane) {
  if constexpr (sizeof(T) == 2) {
    const int side = lane % 8;
    const int k = lane / 8 % 2 * 8;
    const int n = lane / 16 * 8;
    unsigned r[4];
    load_matrix_x4<!k_contiguous>(r,
                                  k_contiguous ? b + (n + side) * ld + k : b + (k + side) * ld + n);
    f[0][0] = r[0];
    f[0][1] = r[1];
    f[1][0] = r[2];
    f[1][1] = r[3];
  } else {
    Mma<T>::template load_b<k_contiguous>(f[0], b, ld, lane);
    Mma<T>::template load_b<k_contiguous>(f[1], b + 8 * (k_contiguous ? ld : 1), ld, lane);
  }
}

/// The second of two products in a row: sums of the first, tiles of 8 columns, are the left operand
/// where they are. A lane holds columns 2t and 2t + 1 of a tile, while the instructions for f32 and
/// f64 want t and t + 4, or one of t: their depth is counted in another order on both sides.
template <class T>
struct Chained {                              // f16 and bf16
  static constexpr int tiles = 2, steps = 1;  ///< tiles of sums in a group; steps of depth in it

  __device__ static unsigned pack(float low, float high) {
    const auto pair = narrow_pair(low, high, T{});
    return *reinterpret_cast<const unsigned*>(&pair);
  }
  __device__ static void left(typename Mma<T>::A& a, const float (*sums)[4], int) {
    a[0] = pack(sums[0][0], sums[0][1]);
    a[1] = pack(sums[0][2], sums[0][3]);
    a[2] = pack(sums[1][0], sums[1][1]);
    a[3] = pack(sums[1][2], sums[1][3]);
  }
  __device__ static void right(typename Mma<T>::B (&f)[2], const T* rows, int ld, int lane, int) {
    load_b_pair<T, false>(f, rows, ld, lane);
  }
};

template <>
struct Chained<float> {
  static constexpr int tiles = 1, steps = 1;

  __device__ static void left(Mma<float>::A& a, const float (*sums)[4], int) {
    a[0] = Mma<float>::split(sums[0][0]);
    a[1] = Mma<float>::split(sums[0][2]);
    a[2] = Mma<float>::split(sums[0][1]);
    a[3] = Mma<float>::split(sums[0][3]);
  }
  __device__ static void right(Mma<float>::B (&f)[2], const float* rows, int ld, int lane, int) {
    const float* at = rows + lane % 4 * 2 * ld + lane / 4;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) f[n][i] = Mma<float>::split(at[i * ld + 8 * n]);
  }
};

template <>
struct Chained<double> {
  static constexpr int tiles = 1, steps = 2;

  __device__ static void left(Mma<double>::A& a, const double (*sums)[2], int step) {
    a[0] = sums[0][step];
  }
  __device__ static void right(Mma<double>::B (&f)[2], const double* rows, int ld, int lane,
                               int step) {
    const double* at = rows + (lane % 4 * 2 + step) * ld + lane / 4;
    f[0][0] = at[0];
    f[1][0] = at[8];
  }
};

/// Extents of the tiles of one kernel. `Whole`: a tile of rows and one of columns each lie within
/// one block, so that a listed piece is there for all rows. `Ctas`: how many share an SM at least.
/// `Unroll`: steps of a product that may overlap. `Stages`: tiles of columns in shared memory.
/// `Rules`: the AttentionRules that a kernel knows of.
template <class T_, int Dim_, int Cols_, int Ctas_, int Unroll_, bool Whole_, int Stages_ = 2,
          unsigned Rules_ = 0>
struct AttentionTile {
  using T = T_;
  using M = Mma<T>;
  using Sum = typename M::Sum;
  using Head = AttentionHead<T, Sum, Rules_>;
  static constexpr int stages = Stages_;
  static constexpr unsigned rules = Rules_;
  static constexpr int slots = (Dim_ + 31) / 32;  ///< of a row over a warp
  static constexpr int dim = Dim_, cols = Cols_, ctas = Ctas_;
  static constexpr bool whole = Whole_;
  static constexpr bool scarce = Unroll_ < 16;  ///< registers are
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  static constexpr int unroll = scarce ? Unroll_ / 2 : Unroll_;  // or ptxas spills a few
#else
  static constexpr int unroll = Unroll_;
#endif
  static constexpr int threads = BlockList::threads;
  static constexpr int rows = threads / 32 * M::rows;
  static constexpr int halves = M::rows / 8;  ///< rows of a warp, in eights
  static constexpr int ld = dim + 16 / static_cast<int>(sizeof(T));
  static constexpr int col_tiles = cols / 8, dim_tiles = dim / 8;
  static constexpr int row_elements = rows * ld, col_elements = cols * ld;
  using Scores = Sum[col_tiles][M::elements];
  using Rows = Sum[dim_tiles][M::elements];
  static_assert(dim % 16 == 0 && cols % 16 == 0 && cols <= 64);
};

/// Where a place of a tile lies before, inside or beyond its sequence.
struct AttentionRange {
  int begin, end;
  __device__ bool has(int i) const { return i >= begin && i < end; }
};

/// Brings rows of `source` into shared memory, those that `index(line)` names; zeros where it is
/// negative and beyond head_dim.
template <class Tile, int Lines, class Index>
__device__ void load_lines(typename Tile::T* shared, const typename Tile::T* source, long long row,
                           int head_dim, const Index& index) {
  constexpr int vector = 16 / static_cast<int>(sizeof(typename Tile::T));
  constexpr int per_line = Tile::dim / vector;
  const auto move = [&](int i) {
    const int line = i / per_line;
    const int at = i % per_line * vector;
    const int from = index(line);
    copy_async_16(shared + line * Tile::ld + at, source + from * row + at,
                  from >= 0 && at < head_dim);
  };
  if constexpr (Tile::scarce) {
    constexpr int copies = Lines * per_line;
    constexpr int rounds = (copies + Tile::threads - 1) / Tile::threads;
#pragma unroll((Tile::unroll + 1) / 2)
    for (int round = 0; round < rounds; ++round) {
      const int i = threadIdx.x + round * Tile::threads;
      if (copies % Tile::threads == 0 || i < copies) move(i);
    }
  } else {
#pragma unroll
    for (int i = threadIdx.x; i < Lines * per_line; i += Tile::threads) move(i);
  }
}

/// The lane. Where registers are scarce it is read anew, so that nothing computed from it is kept.
template <class Tile>
__device__ inline int lane_of() {
  if constexpr (!Tile::scarce) return static_cast<int>(threadIdx.x % 32);
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// One tile of columns: pieces of blocks side by side, and which of them a lane's rows may see.
template <class Tile>
struct AttentionCols {
  int count, log_piece;  ///< of the list and its pieces
  AttentionRange range;
  const unsigned* entries;
  int first = 0;  ///< index of the first of 8 columns; lane l knows of those from 8 (l % tiles) on
  unsigned present[Tile::halves];         ///< a bit for every 8 columns
  unsigned seen[(Tile::cols + 31) / 32];  ///< a bit for each column that is no padding

  __device__ AttentionCols(const BlockList::Memory& list, int listed, int log,
                           const AttentionRange& of)
      : count(listed), log_piece(log), range(of), entries(list.entries) {
    for (unsigned& bits : seen) bits = ~0U;
  }

  __device__ int tiles() const { return ((count << log_piece) + Tile::cols - 1) / Tile::cols; }

  /// Index of column `col` of tile `tile`, -1 for none.
  __device__ int index(int tile, int col) const {
    const int at = tile * Tile::cols + col;
    if (at >> log_piece >= count) return -1;
    const int i = static_cast<int>(entries[at >> log_piece] >> 8 << log_piece) +
                  (at & ((1 << log_piece) - 1));
    return range.has(i) ? i : -1;
  }

  /// Looks at tile `tile` for rows of the warp that lie in lines `line[...]` of the list.
  __device__ void look(int tile, const int (&line)[Tile::halves]) {
    const int at = tile * Tile::cols + threadIdx.x % Tile::col_tiles * 8;
    const unsigned entry = at >> log_piece < count ? entries[at >> log_piece] : 0;
    first = static_cast<int>(entry >> 8 << log_piece) + (at & ((1 << log_piece) - 1));
#pragma unroll
    for (int h = 0; h < Tile::halves; ++h)
      present[h] = Tile::whole ? ~0U : __ballot_sync(0xffffffffU, entry >> line[h] & 1);
  }
  __device__ int first_of(int n) const { return __shfl_sync(0xffffffffU, first, n); }

  /// Whether columns lie at `least` or later: any, or all, of the firsts of 8. One that is not
  /// there counts as index 0 or so.
  __device__ bool any_from(int least) const {
    return __ballot_sync(0xffffffffU, first >= least) != 0;
  }
  __device__ bool all_from(int least) const {
    return __ballot_sync(0xffffffffU, first < least) == 0;
  }

  /// Reads which of the tile's keys are no padding.
  __device__ void read_mask(const unsigned char* mask) {
    const int lane = threadIdx.x % 32;
    const int low = first_of(lane / 8 % Tile::col_tiles) + lane % 8;
    seen[0] = __ballot_sync(0xffffffffU, low < range.end && mask[low] != 0);
    if constexpr (Tile::cols > 32) {
      const int high = first_of(4 + lane / 8) + lane % 8;
      seen[1] = __ballot_sync(0xffffffffU, high < range.end && mask[high] != 0);
    }
  }

  /// Whether column `col` of the n-th 8 of them is no padding.
  __device__ bool sees(int n, int col) const { return seen[n / 4] >> (8 * (n % 4) + col) & 1; }

  /// Whether any row of the warp sees any of the `n` times 8 columns from tile n on.
  __device__ bool any(int from, int n) const {
    if constexpr (Tile::whole) return true;
    unsigned bits = present[0];
    if constexpr (Tile::halves == 2) bits |= present[1];
    return (bits >> from & ((1U << n) - 1)) != 0;
  }

  /// Hides scores of columns that a row does not see. With `edge`, also those that `after(row,
  /// index)` hides, padding, and what lies outside of the sequence.
  template <class After>
  __device__ void hide(typename Tile::Scores& s, bool edge, const After& after) const {
    const auto hidden = minus_infinity<typename Tile::Sum>();
    // Those of 16 bits spill for sm_80 where the lane is read anew, those of f32 where it is kept.
    constexpr bool anew = sizeof(typename Tile::T) == 4;
    const int lane = anew ? lane_of<Tile>() : static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int n = 0; n < Tile::col_tiles; ++n) {
      const int begin = edge ? first_of(n) : 0;
#pragma unroll
      for (int i = 0; i < Tile::M::elements; ++i) {
        bool visible = present[i / 2] >> n & 1;
        if (edge) {
          const int col = Tile::M::col(lane, i);
          visible = visible && range.has(begin + col) &&
                    !after(Tile::M::row(lane, i), begin + col) && sees(n, col);
        }
        if (!visible) s[n][i] = hidden;
      }
    }
  }
};

/// scores = rows * columns^T of this warp; both tiles lie in shared memory.
template <class Tile>
__device__ void multiply_scores(typename Tile::Scores& scores, const typename Tile::T* rows,
                                const typename Tile::T* cols, const AttentionCols<Tile>& tile) {
  using M = typename Tile::M;
  const int lane = lane_of<Tile>();
  rows += threadIdx.x / 32 * M::rows * Tile::ld;
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
    for (int i = 0; i < M::elements; ++i) scores[n][i] = 0;
#pragma unroll(Tile::unroll)
  for (int k = 0; k < Tile::dim; k += M::depth) {
    typename M::A a;
    M::template load_a<true>(a, rows + k, Tile::ld, lane);
#pragma unroll
    for (int n = 0; n < Tile::col_tiles; n += 2) {
      if (!tile.any(n, 2)) continue;
      typename M::B b[2];
      load_b_pair<typename Tile::T, true>(b, cols + 8 * n * Tile::ld + k, Tile::ld, lane);
      M::multiply(scores[n], a, b[0]);
      M::multiply(scores[n + 1], a, b[1]);
    }
  }
}

/// sums += weights * columns, of the column tiles that a chain's step takes from n on.
template <class Tile>
__device__ __forceinline__ void multiply_weights_from(int n, typename Tile::Rows& sums,
                                                      const typename Tile::Scores& weights,
                                                      const typename Tile::T* cols, int lane) {
  using M = typename Tile::M;
  using C = Chained<typename Tile::T>;
#pragma unroll
  for (int step = 0; step < C::steps; ++step) {
    typename M::A a;
    C::left(a, weights + n, step);
#pragma unroll
    for (int d = 0; d < Tile::dim_tiles; d += 2) {
      typename M::B b[2];
      C::right(b, cols + 8 * n * Tile::ld + 8 * d, Tile::ld, lane, step);
      M::multiply(sums[d], a, b[0]);
      M::multiply(sums[d + 1], a, b[1]);
    }
  }
}

/// sums += weights * columns: the second product of a chain.
template <class Tile>
__device__ void multiply_weights(typename Tile::Rows& sums, const typename Tile::Scores& weights,
                                 const typename Tile::T* cols, const AttentionCols<Tile>& tile) {
  using C = Chained<typename Tile::T>;
  const int lane = lane_of<Tile>();
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; n += C::tiles)
    if (tile.any(n, C::tiles)) multiply_weights_from<Tile>(n, sums, weights, cols, lane);
}

/// Turns products of this warp, whose first row is `row`, into scores in powers of two, and hides
/// what is not seen. `slopes` takes derivatives by the scaled products. Rows are queries, or, where
/// `turned`, keys.
template <class Tile, bool turned>
__device__ void shape_scores(typename Tile::Scores& s, typename Tile::Scores* slopes,
                             const AttentionCols<Tile>& cols, const typename Tile::Head& head,
                             const AttentionRange& rows, int row) {
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  const int lane = threadIdx.x % 32;
  const auto scale = static_cast<Sum>(head.p.scale);
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; ++n) {
    const int begin = cols.first_of(n);
#pragma unroll
    for (int i = 0; i < M::elements; ++i) {
      const int at = row + M::row(lane, i), col = begin + M::col(lane, i);
      const int query = turned ? col : at, key = turned ? at : col;
      const bool there = (Tile::whole || (cols.present[i / 2] >> n & 1)) && rows.has(at) &&
                         cols.range.has(col) && cols.sees(n, M::col(lane, i));
      Sum slope = 0;
      if (there && head.sees(query, key)) {
        s[n][i] *= scale;
        slope = head.shape(s[n][i], query, key);
      } else {
        s[n][i] = minus_infinity<Sum>();
      }
      if (slopes) (*slopes)[n][i] = slope;
    }
  }
}

/// The factors that dropout has for this warp's weights.
template <class Tile, bool turned>
__device__ void drop_factors(typename Tile::Scores& factors, const AttentionCols<Tile>& cols,
                             const typename Tile::Head& head, int row) {
  using M = typename Tile::M;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; ++n) {
    const int begin = cols.first_of(n);
#pragma unroll
    for (int i = 0; i < M::elements; i += 2) {
      const int at = row + M::row(lane, i), col = begin + M::col(lane, i);
      if constexpr (turned) {
        factors[n][i] = head.factor(col, at);
        factors[n][i + 1] = head.factor(col + 1, at);
      } else {
        const PhiloxBlock words = head.words(at, col);  // of both: columns are even
        factors[n][i] = head.factor(words, col);
        factors[n][i + 1] = head.factor(words, col + 1);
      }
    }
  }
}

/// Rows of this warp, four lanes a row, that want to be made anew.
template <class Tile>
struct WrongRows {
  unsigned lanes[Tile::halves];
};

/// Writes this warp's rows of `sums`, times a factor a row, to rows `range` of `target`, where row
/// 0 of the tile is number `first`. Gives those that are not finite although `expected(half)` says
/// that they should be.
template <class Tile, class Factor, class Expected>
__device__ WrongRows<Tile> store_rows(const typename Tile::Rows& sums, typename Tile::T* target,
                                      long long row, int columns, int first,
                                      const AttentionRange& range, const Factor& factor,
                                      const Expected& expected) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  const int lane = threadIdx.x % 32;
  first += static_cast<int>(threadIdx.x) / 32 * M::rows;
  WrongRows<Tile> wrong;
#pragma unroll
  for (int h = 0; h < Tile::halves; ++h) {
    const int at = first + M::row(lane, 2 * h);
    Sum zero = 0;  // unless a sum is not finite
    if (range.has(at)) {
      const Sum f = factor(h, at);
#pragma unroll
      for (int d = 0; d < Tile::dim_tiles; ++d) {
        if (8 * d >= columns) continue;
        const Sum low = f == 0 ? Sum(0) : sums[d][2 * h] * f;
        const Sum high = f == 0 ? Sum(0) : sums[d][2 * h + 1] * f;
        zero += low * 0 + high * 0;
        auto pair = narrow_pair(low, high, T{});
        T* to = target + at * row + 8 * d + M::col(lane, 0);
        *reinterpret_cast<decltype(pair)*>(to) = pair;
      }
    }
    wrong.lanes[h] = __ballot_sync(0xffffffffU, zero != 0 && expected(h));
  }
  return wrong;
}

/// Calls again(row), with the whole warp, for each wrong row of a tile whose row 0 is `first`.
template <class Tile, class Again>
__device__ void mend_rows(WrongRows<Tile> wrong, int first, const Again& again) {
  using M = typename Tile::M;
  first += static_cast<int>(threadIdx.x) / 32 * M::rows;
#pragma unroll
  for (int h = 0; h < Tile::halves; ++h)
    while (wrong.lanes[h] != 0) {
      const int quad = (__ffs(static_cast<int>(wrong.lanes[h])) - 1) / 4;  // a row's lanes
      wrong.lanes[h] &= ~(0xfU << 4 * quad);
      __syncwarp();  // what other lanes wrote of the row comes before what is written now
      again(first + M::row(4 * quad, 2 * h));
    }
}

}  // namespace bs::cuda::device
