#pragma once
// out = softmax(scale q k^T, within a layout) v, and the log of the softmax' denominators.
#include <bs/kernels/cuda/device/attention/attention_tile.cuh>

namespace bs::cuda::device {

template <class T>
using AttentionForward = AttentionForwardArguments<T, typename Mma<T>::Sum>;

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

  /// The sums of whole rows.
  __device__ void finish() {
#pragma unroll
    for (int h = 0; h < Tile::halves; ++h) {
      sum[h] += __shfl_xor_sync(0xffffffffU, sum[h], 1);
      sum[h] += __shfl_xor_sync(0xffffffffU, sum[h], 2);
    }
  }
};

/// Queries, two stages of keys and values, the list.
template <class Tile>
struct ForwardShared {
  static constexpr int bytes =
      (Tile::row_elements + 4 * Tile::col_elements) * static_cast<int>(sizeof(typename Tile::T)) +
      static_cast<int>(sizeof(BlockList::Memory));
};

/// Grid: a CTA for each tile of rows of each head, tiles fastest; of causal problems, those with
/// the most work first.
template <class Tile>
__device__ inline int attention_tile_of(int tiles, bool heaviest_last, int& b, int& h, int heads) {
  const int item = static_cast<int>(blockIdx.x) / tiles;
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  b = item / heads;
  h = item % heads;
  return (heaviest_last ? tiles - 1 - tile : tile) * Tile::rows;
}

/// A tile of queries.
template <class Tile>
__device__ inline void attention_forward(const AttentionForward<typename Tile::T>& a) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  extern __shared__ uint4 shared_memory[];
  T* const queries = reinterpret_cast<T*>(shared_memory);
  T* const stages = queries + Tile::row_elements;  // keys 0, values 0, keys 1, values 1
  auto& list_memory = *reinterpret_cast<BlockList::Memory*>(stages + 4 * Tile::col_elements);

  const AttentionProblem& p = a.problem;
  int b, h;
  const int first =
      attention_tile_of<Tile>((p.queries + Tile::rows - 1) / Tile::rows, p.causal, b, h, p.heads);
  const int piece = min(p.block, Tile::cols);
  const int log_piece = 31 - __clz(piece);
  const int last = min(first + Tile::rows, p.queries) - 1;
  BlockList list(list_memory, a.rows, p.layout_heads == 1 ? 0 : h, first / p.block,
                 max(1, Tile::rows / p.block), p.block / piece, 0,
                 p.causal ? last / piece + 1 : 0x7fffffff);
  const T* const k = a.k.at(b, h / p.group);
  const T* const v = a.v.at(b, h / p.group);
  load_lines<Tile, Tile::rows>(queries, a.q.at(b, h), a.q.row, p.head_dim,
                               [&](int line) { return first + line <= last ? first + line : -1; });

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * M::rows;
  int line[Tile::halves];
#pragma unroll
  for (int i = 0; i < Tile::halves; ++i) line[i] = (warp_row + 8 * i) / p.block;
  const auto after = [&](int row, int key) { return p.causal && key > first + warp_row + row; };
  const Sum scale = static_cast<Sum>(p.scale * 1.4426950408889634);
  OnlineSoftmax<Tile> softmax;
  typename Tile::Rows sums = {};

  while (const int count = list.next()) {
    AttentionCols<Tile> cols(list_memory, count, log_piece);
    const auto fetch = [&](int tile) {
      T* stage = stages + tile % 2 * 2 * Tile::col_elements;
      const auto index = [&](int line_of_tile) { return cols.index(tile, line_of_tile); };
      load_lines<Tile, Tile::cols>(stage, k, a.k.row, p.head_dim, index);
      load_lines<Tile, Tile::cols>(stage + Tile::col_elements, v, a.v.row, p.head_dim, index);
      commit_copies();
    };
    const int tiles = cols.tiles();
    fetch(0);
    for (int tile = 0; tile < tiles; ++tile) {
      cols.look(tile, line);
      if (p.seen) cols.read_mask(p.seen + static_cast<long long>(b) * p.keys);
      wait_copies<0>();
      __syncthreads();  // the tile is there for all, and the other stage is free
      if (tile + 1 < tiles) fetch(tile + 1);
      if (!cols.any(0, Tile::col_tiles)) continue;
      const T* stage = stages + tile % 2 * 2 * Tile::col_elements;
      typename Tile::Scores scores;
      multiply_scores<Tile>(scores, queries, stage, cols);
      const bool edge = p.seen || (p.causal && cols.any_from(first + warp_row - 6));
      if (!Tile::whole || edge) cols.hide(scores, edge, after);
      softmax.fold(scores, sums, scale);
      multiply_weights<Tile>(sums, scores, stage + Tile::col_elements, cols);
    }
  }

  softmax.finish();
  const long long at = (static_cast<long long>(b) * p.heads + h) * p.queries;
  store_rows<Tile>(
      sums, a.out.at(b, h), a.out.row, p.head_dim, first, last + 1, [&](int half, int row) {
        const Sum sum = softmax.sum[half];
        if (threadIdx.x % 4 == 0)
          a.lse[at + row] =
              sum == 0 ? minus_infinity<Sum>()
                       : static_cast<Sum>(0.6931471805599453) * (softmax.shift(half) + log2(sum));
        const Sum inverse = sum == 0 ? Sum(0) : 1 / sum;
        return [inverse](Sum x) { return x * inverse; };
      });
}

}  // namespace bs::cuda::device
