#pragma once
// Rows of block-sparse matrices on the lanes of a warp.
#include <bs/lib/cuda/launch.h>
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>
#include <bit>
#include <limits>

namespace bs::cuda::block_rows {

using device::Pack;
using device::Raw;
using device::wide;

constexpr int warp = 32, log_warp = 5;

/// Shares of work, one a warp: the same number of neighbouring rows of one row of blocks, whose
/// blocks lie side by side in memory. A row is read by 32 / rows lanes, or by more where it is
/// long; the warp then takes its rows in turns. All of these are powers of two.
struct Shares {
  LayoutView layout;
  uint32_t count;
  Divisor lines, of_head;                 ///< rows of blocks of a matrix, of a head
  int log_block, log_lanes, log_of_line;  ///< lanes of a row; shares of a row of blocks
  bool causal;
  const bool* keep;  ///< [masks, width], or null
  Divisor matrices_a_mask;
};

template <class T>
__device__ T lowest() {
  return device::narrow<T>(-std::numeric_limits<wide<T>>::infinity());
}

/// Puts -infinity where a bit is set.
template <class T, int N>
__device__ void hide(Raw<T, N>& raw, unsigned bits) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    const T element = lowest<T>();
    const unsigned two = reinterpret_cast<const unsigned short&>(element) * 0x10001U;
#pragma unroll
    for (int i = 0; i < N / 2; ++i, bits >>= 2) {
      const unsigned low = (bits & 1) * 0x44, high = (bits & 2) * 0x2200;
      raw.at[i] = __byte_perm(raw.at[i], two, 0x3210 | low | high);
    }
  } else {
    auto& elements = reinterpret_cast<Pack<T, N>&>(raw);
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (bits >> j & 1) elements.at[j] = lowest<T>();
  }
}

/// Bools as bits: of four by a product, whose partial sums have a bit each.
template <int N>
__device__ unsigned bits_of(const Pack<bool, N>& of) {
  unsigned bits = 0;
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4)
      bits |= (reinterpret_cast<const unsigned&>(of.at[i]) * 0x01020408U >> 24 & 0xfU) << i;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) bits |= static_cast<unsigned>(of.at[i]) << i;
  }
  return bits;
}

/// The largest element of packs, of 16 bits two at a time; NaN is passed over.
template <class T, int N, int held>
__device__ wide<T> largest(const Raw<T, N> (&packs)[held]) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    using Two = decltype(device::narrow_pair(0.0F, 0.0F, T()));
    Two top{lowest<T>(), lowest<T>()};
#pragma unroll
    for (const Raw<T, N>& pack : packs)
#pragma unroll
      for (const unsigned& word : pack.at) top = __hmax2(top, reinterpret_cast<const Two&>(word));
    return fmax(device::widen(T(top.x)), device::widen(T(top.y)));
  } else {
    wide<T> top = -INFINITY;
#pragma unroll
    for (const Raw<T, N>& pack : packs) {
      wide<T> v[N];
      device::widen_pack<T, N>(pack, v);
#pragma unroll
      for (int j = 0; j < N; ++j) top = fmax(top, v[j]);
    }
    return top;
  }
}

/// One row of elements in packs of N, its pieces one block apart, as one of its lanes sees it,
/// which keeps `held` packs at once: a chunk.
template <class T, int N, int held>
struct Row {
  using Packs = Raw<T, N>[held];

  const int32_t* cols;
  const bool* keep;
  int64_t first;  ///< offset of the first piece
  uint32_t matrix;
  int log_block, log_lanes;
  int packs;  ///< of the whole row: one at least
  int seen;   ///< columns up to the last that is seen
  int lane;

  /// Packs of a piece.
  __device__ int log_packs() const { return log_block - (31 - __clz(N)); }
  __device__ int inside(int pack) const { return (pack & ((1 << log_packs()) - 1)) * N; }
  /// Offset of a pack from `first`.
  __device__ unsigned offset(int pack) const {
    return static_cast<unsigned>((pack >> log_packs() << 2 * log_block) + inside(pack));
  }
  /// Which pack this lane has at place k of a chunk, or would have if there were as many.
  __device__ int pack(int chunk, int k) const { return lane + (chunk * held + k << log_lanes); }
  __device__ int chunks() const { return ((packs - 1) / held >> log_lanes) + 1; }

  /// Calls f(k, pack number) for each place of a chunk; what would be behind the last pack is that
  /// one again.
  template <class F>
  __device__ void for_each_place(int chunk, F&& f) const {
#pragma unroll
    for (int k = 0; k < held; ++k) f(k, min(pack(chunk, k), packs - 1));
  }
  /// The same for this lane's packs alone.
  template <class F>
  __device__ void for_each(int chunk, F&& f) const {
#pragma unroll
    for (int k = 0; k < held; ++k)
      if (const int p = pack(chunk, k); p < packs) f(k, p);
  }
  __device__ void load(const T* x, int chunk, Packs& to) const {
    const T* const from = x + first;
    for_each_place(chunk, [&](int k, int p) {
      to[k] = *reinterpret_cast<const Raw<T, N>*>(from + offset(p));
    });
  }
  /// The same with -infinity for what is hidden.
  __device__ void load_seen(const T* x, int chunk, Packs& to) const {
    load(x, chunk, to);
    int column[held];
    unsigned shown[held];
    for_each_place(chunk, [&](int k, int p) {
      column[k] = (cols[p >> log_packs()] << log_block) + inside(p);
      shown[k] = (1U << min(max(seen - column[k], 0), N)) - 1;
    });
    if (keep) {
      Pack<bool, N> kept[held];
#pragma unroll
      for (int k = 0; k < held; ++k)
        kept[k] = *reinterpret_cast<const Pack<bool, N>*>(keep + column[k]);
#pragma unroll
      for (int k = 0; k < held; ++k) shown[k] &= bits_of(kept[k]);
    }
    constexpr unsigned all = (1U << N) - 1;
#pragma unroll
    for (int k = 0; k < held; ++k)
      if (shown[k] != all) hide<T, N>(to[k], ~shown[k]);
  }
  template <class U>
  __device__ void store(U* x, int pack, const wide<T> (&values)[N]) const {
    U* const to = x + first;
    *reinterpret_cast<Pack<U, N>*>(to + offset(pack)) = device::narrow_pack<U, N>(values);
  }

  /// Reduces over the lanes of the row.
  template <class Op>
  __device__ wide<T> reduce(wide<T> value, Op op) const {
    for (int offset = 1 << log_lanes >> 1; offset > 0; offset /= 2)
      value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
    return value;
  }
};

/// Calls f(row) for the rows of a share, unless they are empty; the warp is in it as one.
template <class T, int N, int held, class F>
__device__ void for_each_row(const Shares& shares, uint32_t share, F&& f) {
  const LayoutView& l = shares.layout;
  if (share >= shares.count) return;
  const uint32_t at = share >> shares.log_of_line, matrix = shares.lines.divide(at);
  const uint32_t line = at - matrix * shares.lines.number;
  const int32_t begin = l.row_offsets[line], blocks = l.row_offsets[line + 1] - begin;
  if (blocks == 0) return;
  Row<T, N, held> row;
  row.matrix = matrix;
  row.log_block = shares.log_block;
  row.packs = blocks << row.log_packs();
  row.cols = l.col_of + begin;
  row.log_lanes = shares.log_lanes;
  while (row.log_lanes < log_warp && row.packs > held << row.log_lanes) ++row.log_lanes;
  row.lane = static_cast<int>(threadIdx.x) & ((1 << row.log_lanes) - 1);
  row.keep = nullptr;
  if (shares.keep)
    row.keep = shares.keep + int64_t{shares.matrices_a_mask.divide(matrix)} * l.cols * l.block;
  const int64_t start = int64_t{matrix} * l.nnz + begin << 2 * row.log_block;
  const int rows = warp >> shares.log_lanes;
  const auto first_row = static_cast<int>(share & ((1U << shares.log_of_line) - 1)) * rows;
  int line_of_head = l.cols;  // so that nothing is above the diagonal
  if (shares.causal)
    line_of_head = static_cast<int>(line - shares.of_head.divide(line) * shares.of_head.number);
  for (int i = 0; i < rows; i += warp >> row.log_lanes) {
    const int inside = first_row + i + (static_cast<int>(threadIdx.x) >> row.log_lanes);
    row.first = start + (inside << row.log_block);
    row.seen = (line_of_head << row.log_block) + inside + 1;
    f(row);
  }
}

/// Rows of a share: as many as a warp reads at once, in so many packs a lane, where rows are of the
/// average length.
inline Shares shares_of(const Layout& layout, const Tensor& values, int pack, int each) {
  const int block = layout.block();
  const int64_t area = int64_t{block} * block, lines = int64_t{layout.heads()} * layout.rows();
  const int64_t matrices = values.numel() / (layout.nnz() * area);
  Shares shares{};
  shares.layout = layout.view(values.device());
  shares.log_block = std::countr_zero(static_cast<unsigned>(block));
  shares.log_lanes = std::max(log_warp - shares.log_block, 0);
  while (shares.log_lanes < log_warp &&
         layout.nnz() * block / pack > (each * lines << shares.log_lanes))
    ++shares.log_lanes;
  shares.log_of_line = shares.log_block - log_warp + shares.log_lanes;
  shares.lines = Divisor(lines);
  shares.of_head = Divisor(layout.rows());
  shares.count = static_cast<uint32_t>(matrices * lines << shares.log_of_line);
  return shares;
}

/// Calls f with the packs that lanes keep of a row: as few as hold the longest rows, up to `most`.
template <int N, int most, class F>
void visit_held(const Layout& layout, const Shares& shares, F&& f) {
  const int64_t packs = int64_t{layout.max_row()} * layout.block() / N;
  if constexpr (N > 2) {
    if (packs <= int64_t{2} << shares.log_lanes) return f(std::integral_constant<int, 2>{});
    if (packs <= int64_t{4} * warp) return f(std::integral_constant<int, 4>{});
    if (most > 8 && packs > int64_t{8} * warp) return f(std::integral_constant<int, most>{});
  }
  f(std::integral_constant<int, 8>{});
}

}  // namespace bs::cuda::block_rows
