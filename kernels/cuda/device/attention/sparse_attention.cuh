#pragma once
// out = softmax(scale q k^T, within a layout) v, and the log of the softmax' denominators.
#include <bs/kernels/cuda/device/attention/attention_tile.cuh>

namespace bs::cuda::device {

/// The softmax of a warp's rows as far as they have gone; in powers of two.
template <class Tile>
struct OnlineSoftmax {
  using Sum = typename Tile::Sum;
  Sum top[Tile::halves], sum[Tile::halves];  ///< `sum` over this lane's columns only

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int h = 0; h < Tile::halves; ++h) {
      top[h] = minus_infinity<Sum>();
      sum[h] = 0;
    }
  }
  /// A row that has met no key has nothing to scale: any finite shift will do.
  __device__ Sum shift(int h) const { return top[h] == minus_infinity<Sum>() ? Sum(0) : top[h]; }

  /// Turns scores into weights 2^(scale * score - shift); brings what was summed to the new shift.
  __device__ void fold(typename Tile::Scores& s, typename Tile::Rows& rows, Sum scale) {
#pragma unroll
    for (int h = 0; h < Tile::halves; ++h) {
      Sum peak = minus_infinity<Sum>();
#pragma unroll
      for (int n = 0; n < Tile::col_tiles; ++n)
        peak = fmax(peak, fmax(s[n][2 * h], s[n][2 * h + 1]));
      peak = fmax(peak, __shfl_xor_sync(0xffffffffU, peak, 1));
      peak = fmax(peak, __shfl_xor_sync(0xffffffffU, peak, 2));
      const Sum before = top[h];
      top[h] = fmax(before, peak * scale);
      const Sum to = shift(h);
      const Sum factor = exp2_of(before - to);
      Sum total = 0;
#pragma unroll
      for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[n][i] = exp2_of(s[n][i] * scale - to);
          total += s[n][i];
        }
      sum[h] = sum[h] * factor + total;
#pragma unroll
      for (int d = 0; d < Tile::dim_tiles; ++d) {
        rows[d][2 * h] *= factor;
        rows[d][2 * h + 1] *= factor;
      }
    }
  }

  /// Adds a logit that has no value; in powers of two. A row's first lane counts it.
  __device__ void join(typename Tile::Rows& rows, Sum logit) {
#pragma unroll
    for (int h = 0; h < Tile::halves; ++h) {
      const Sum before = top[h];
      top[h] = fmax(before, logit);
      const Sum factor = exp2_of(before - shift(h));
      sum[h] = sum[h] * factor + (threadIdx.x % 4 == 0 ? exp2_of(logit - shift(h)) : Sum(0));
#pragma unroll
      for (int d = 0; d < Tile::dim_tiles; ++d) {
        rows[d][2 * h] *= factor;
        rows[d][2 * h + 1] *= factor;
      }
    }
  }

  /// The sums of whole rows.
  __device__ void finish() {
#pragma unroll
    for (int h = 0; h < Tile::halves; ++h) {
      sum[h] += __shfl_xor_sync(0xffffffffU, sum[h], 1);
      sum[h] += __shfl_xor_sync(0xffffffffU, sum[h], 2);
    }
  }
};

/// Queries, stages of keys and values, the list.
template <class Tile>
struct ForwardShared {
  static constexpr int bytes = (Tile::row_elements + 2 * Tile::stages * Tile::col_elements) *
                                   static_cast<int>(sizeof(typename Tile::T)) +
                               static_cast<int>(sizeof(BlockList::Memory));
};

/// Work `number` of as many as heads have tiles of rows, tiles fastest; those with the most work
/// first, where that lies at the end.
__device__ inline int attention_tile_of(unsigned number, int tiles, bool heaviest_last,
                                        int& sequence, int& h, int heads) {
  const int item = static_cast<int>(number) / tiles;
  const int tile = static_cast<int>(number) % tiles;
  sequence = item / heads;
  h = item % heads;
  return heaviest_last ? tiles - 1 - tile : tile;
}

/// Pieces of keys that queries [from, to) may see, as far as distances tell.
template <class Tile>
__device__ inline AttentionRange attention_key_pieces(const AttentionProblem& p, int from, int to,
                                                      int piece) {
  const int last = to - 1 + p.last;
  AttentionRange pieces{0, last < 0 ? 0 : last / piece + 1};
  if constexpr (Tile::rules & rule_window) pieces.begin = max(from + p.first, 0) / piece;
  return pieces;
}

/// A tile of queries.
template <class Tile>
__device__ inline void attention_forward(const AttentionForward<typename Tile::T>& a,
                                         unsigned work) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  using Head = typename Tile::Head;
  extern __shared__ uint4 shared_memory[];
  T* const queries = reinterpret_cast<T*>(shared_memory);
  T* const stages = queries + Tile::row_elements;  // keys 0, values 0, keys 1, values 1
  auto& list_memory =
      *reinterpret_cast<BlockList::Memory*>(stages + 2 * Tile::stages * Tile::col_elements);

  const AttentionProblem& p = a.problem;
  int sequence, h;
  const int number = attention_tile_of(work, p.tiles, p.heavy_end, sequence, h, p.heads);
  const Head head(p, a.scores, sequence, h);
  const int first = (head.begin / Tile::rows + number) * Tile::rows;
  const AttentionRange own{head.begin, head.end};
  if (first >= own.end) return;
  const int piece = min(p.block, Tile::cols);
  const int log_piece = 31 - __clz(piece);
  const AttentionRange pieces =
      attention_key_pieces<Tile>(p, first, min(first + Tile::rows, own.end), piece);
  BlockList list(list_memory, a.rows, head.layout_head(), first / p.block,
                 max(1, Tile::rows / p.block), p.block / piece, pieces.begin, pieces.end);
  const unsigned char* const seen = head.seen();
  load_lines<Tile, Tile::rows>(queries, head.queries_of(a.q), a.q.row, p.head_dim,
                               [&](int line) { return own.has(first + line) ? first + line : -1; });

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * M::rows;
  int line[Tile::halves];
#pragma unroll
  for (int i = 0; i < Tile::halves; ++i) line[i] = (warp_row + 8 * i) / p.block;
  const auto after = [&](int row, int key) { return key > first + warp_row + row + p.last; };
  const Sum scale = Head::plain ? static_cast<Sum>(p.scale * Head::log2_e) : Sum(1);
  const int edge_from = min(first + warp_row + p.last, head.keys - 1) - 6;
  OnlineSoftmax<Tile> softmax;
  typename Tile::Rows sums = {};

  while (const int count = list.next()) {
    AttentionCols<Tile> cols(list_memory, count, log_piece, {0, head.keys});
    const auto fetch = [&](int tile) {
      T* stage = stages + tile % Tile::stages * 2 * Tile::col_elements;
      const auto index = [&](int line_of_tile) {
        const int key = cols.index(tile, line_of_tile);
        return seen && key >= 0 && seen[key] == 0 ? -1 : key;
      };
      load_lines<Tile, Tile::cols>(stage, head.keys_of(a.k), a.k.row, p.head_dim, index);
      load_lines<Tile, Tile::cols>(stage + Tile::col_elements, head.keys_of(a.v), a.v.row,
                                   p.value_dim, index);
      commit_copies();
    };
    const int tiles = cols.tiles();
    if constexpr (Tile::stages == 2) fetch(0);
    for (int tile = 0; tile < tiles; ++tile) {
      if constexpr (Tile::stages == 1) {
        if (tile > 0) __syncthreads();  // all are done with the tile before
        fetch(tile);
      }
      cols.look(tile, line);
      if (seen) cols.read_mask(seen);
      wait_copies<0>();
      __syncthreads();  // the tile is there for all, and the other stage is free
      if (Tile::stages == 2 && tile + 1 < tiles) fetch(tile + 1);
      if (!cols.any(0, Tile::col_tiles)) continue;
      const T* stage = stages + tile % Tile::stages * 2 * Tile::col_elements;
      typename Tile::Scores scores;
      multiply_scores<Tile>(scores, queries, stage, cols);
      if constexpr (Head::plain) {
        const bool edge = seen || cols.any_from(edge_from);
        if (!Tile::whole || edge) cols.hide(scores, edge, after);
      } else {
        shape_scores<Tile, false>(scores, nullptr, cols, head, own, first + warp_row);
      }
      softmax.fold(scores, sums, scale);
      if constexpr (Tile::rules & rule_dropout) {
        typename Tile::Scores factors;
        drop_factors<Tile, false>(factors, cols, head, first + warp_row);
#pragma unroll
        for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
          for (int i = 0; i < M::elements; ++i) scores[n][i] *= factors[n][i];
      }
      multiply_weights<Tile>(sums, scores, stage + Tile::col_elements, cols);
    }
  }

  if (a.scores.sinks) softmax.join(sums, a.scores.sinks[h] * static_cast<Sum>(Head::log2_e));
  softmax.finish();
  const auto wrong = store_rows<Tile>(
      sums, head.queries_of(a.out), a.out.row, p.value_dim, first, own,
      [&](int half, int row) {
        const Sum sum = softmax.sum[half];
        if (threadIdx.x % 4 == 0)
          a.lse[head.row(row)] =
              sum == 0 ? minus_infinity<Sum>()
                       : static_cast<Sum>(0.6931471805599453) * (softmax.shift(half) + log2(sum));
        return sum == 0 ? Sum(0) : 1 / sum;
      },
      [&](int half) { return softmax.sum[half] == softmax.sum[half]; });
  mend_rows<Tile>(wrong, first, [&](int row) {
    attention_single_query<T, Tile::rules, Tile::slots>(a, head, row);
  });
}

}  // namespace bs::cuda::device
