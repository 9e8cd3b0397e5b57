#pragma once
// Gradients of sparse_attention.cuh. Weights are made anew from the scores and the rows' logs. One
// kernel walks rows of queries for dq, another columns of keys for dk and dv: nothing is added to
// memory, so the order of all sums is fixed.
#include <bs/kernels/cuda/device/attention/sparse_attention.cuh>

namespace bs::cuda::device {

template <class T>
using AttentionBackward = AttentionBackwardArguments<T, typename Mma<T>::Sum>;

/// Fills log_sums and means; a warp a row.
template <class T>
__device__ inline void attention_row_numbers(const AttentionBackward<T>& a, long long total) {
  using Sum = typename Mma<T>::Sum;
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (at >= total) return;
  const AttentionProblem& p = a.problem;
  const int row = static_cast<int>(at % p.queries);
  const int h = static_cast<int>(at / p.queries % p.heads);
  const int b = static_cast<int>(at / p.queries / p.heads);
  const T* const x = a.out.at(b, h) + row * a.out.row;
  const T* const y = a.dout.at(b, h) + row * a.dout.row;
  Sum sum = 0;
  for (int d = threadIdx.x % 32; d < p.head_dim; d += 32) sum += widen(x[d]) * widen(y[d]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  if (threadIdx.x % 32 != 0) return;
  const Sum log_sum = a.lse[at];
  a.log_sums[at] =
      log_sum == minus_infinity<Sum>() ? -log_sum : log_sum * static_cast<Sum>(1.4426950408889634);
  a.means[at] = sum;
}

/// Queries and gradients of the output, two stages of keys and values, the list.
template <class Tile>
struct QueryShared {
  static constexpr int bytes = (2 * Tile::row_elements + 4 * Tile::col_elements) *
                                   static_cast<int>(sizeof(typename Tile::T)) +
                               static_cast<int>(sizeof(BlockList::Memory));
};

/// dq of a tile of queries.
template <class Tile>
__device__ inline void attention_query_gradient(const AttentionBackward<typename Tile::T>& a) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  extern __shared__ uint4 shared_memory[];
  T* const queries = reinterpret_cast<T*>(shared_memory);
  T* const douts = queries + Tile::row_elements;
  T* const stages = douts + Tile::row_elements;  // keys 0, values 0, keys 1, values 1
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
  const auto own = [&](int line) { return first + line <= last ? first + line : -1; };
  load_lines<Tile, Tile::rows>(queries, a.q.at(b, h), a.q.row, p.head_dim, own);
  load_lines<Tile, Tile::rows>(douts, a.dout.at(b, h), a.dout.row, p.head_dim, own);

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * M::rows;
  int line[Tile::halves];
  Sum log_sum[Tile::halves], mean[Tile::halves];
#pragma unroll
  for (int i = 0; i < Tile::halves; ++i) {
    line[i] = (warp_row + 8 * i) / p.block;
    const int row = min(first + warp_row + M::row(threadIdx.x % 32, 2 * i), last);
    const long long at = (static_cast<long long>(b) * p.heads + h) * p.queries + row;
    log_sum[i] = a.log_sums[at];
    mean[i] = a.means[at];
  }
  const auto after = [&](int row, int key) { return p.causal && key > first + warp_row + row; };
  const Sum scale = static_cast<Sum>(p.scale * 1.4426950408889634);
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
      typename Tile::Scores weights, ds;
      multiply_scores<Tile>(weights, queries, stage, cols);
      const bool edge = p.seen || (p.causal && cols.any_from(first + warp_row - 6));
      if (!Tile::whole || edge) cols.hide(weights, edge, after);
      multiply_scores<Tile>(ds, douts, stage + Tile::col_elements, cols);
#pragma unroll
      for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
        for (int i = 0; i < M::elements; ++i)
          ds[n][i] = exp2_of(weights[n][i] * scale - log_sum[i / 2]) * (ds[n][i] - mean[i / 2]);
      multiply_weights<Tile>(sums, ds, stage, cols);
    }
  }
  store_rows<Tile>(sums, a.dq.at(b, h), a.dq.row, p.head_dim, first, last + 1, [&](int, int) {
    return [factor = static_cast<Sum>(p.scale)](Sum x) { return x * factor; };
  });
}

/// Keys and values, two stages of queries, gradients of the output and two numbers for each of them
/// (log_sum and mean), the list.
template <class Tile>
struct KeyShared {
  static constexpr int stage_bytes =
      2 * Tile::col_elements * static_cast<int>(sizeof(typename Tile::T)) +
      2 * Tile::cols * static_cast<int>(sizeof(typename Tile::Sum));
  static constexpr int bytes = 2 * Tile::row_elements * static_cast<int>(sizeof(typename Tile::T)) +
                               2 * stage_bytes + static_cast<int>(sizeof(BlockList::Memory));
};

/// Brings two numbers for each column of a tile; pieces begin at multiples of 8.
template <class Tile, class Index>
__device__ void load_numbers(typename Tile::Sum* shared, const typename Tile::Sum* log_sums,
                             const typename Tile::Sum* means, const Index& index) {
  constexpr int vector = 16 / static_cast<int>(sizeof(typename Tile::Sum));
  constexpr int copies = Tile::cols / vector;
  for (int i = threadIdx.x; i < 2 * copies; i += Tile::threads) {
    const int col = i % copies * vector;
    const int from = index(col);
    copy_async_16(shared + i / copies * Tile::cols + col, (i < copies ? log_sums : means) + from,
                  from >= 0);
  }
}

/// dk and dv of a tile of keys. Scores stand transposed here: keys are rows, queries columns.
template <class Tile>
__device__ inline void attention_key_gradient(const AttentionBackward<typename Tile::T>& a) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  using Shared = KeyShared<Tile>;
  extern __shared__ uint4 shared_memory[];
  T* const keys = reinterpret_cast<T*>(shared_memory);
  T* const values = keys + Tile::row_elements;
  char* const stages = reinterpret_cast<char*>(values + Tile::row_elements);
  auto& list_memory = *reinterpret_cast<BlockList::Memory*>(stages + 2 * Shared::stage_bytes);

  const AttentionProblem& p = a.problem;
  const int kv_heads = p.heads / p.group;
  int b, kv;
  const int first =
      attention_tile_of<Tile>((p.keys + Tile::rows - 1) / Tile::rows, false, b, kv, kv_heads);
  const int piece = min(p.block, Tile::cols);
  const int log_piece = 31 - __clz(piece);
  const int last = min(first + Tile::rows, p.keys) - 1;
  const auto own = [&](int line) { return first + line <= last ? first + line : -1; };
  load_lines<Tile, Tile::rows>(keys, a.k.at(b, kv), a.k.row, p.head_dim, own);
  load_lines<Tile, Tile::rows>(values, a.v.at(b, kv), a.v.row, p.head_dim, own);

  const int lane = threadIdx.x % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * M::rows;
  int line[Tile::halves];
#pragma unroll
  for (int i = 0; i < Tile::halves; ++i) line[i] = (warp_row + 8 * i) / p.block;
  const auto after = [&](int row, int query) { return first + warp_row + row > query; };
  const Sum scale = static_cast<Sum>(p.scale * 1.4426950408889634);
  typename Tile::Rows dk = {};
  typename Tile::Rows dv = {};

  for (int h = kv * p.group; h < (kv + 1) * p.group; ++h) {
    BlockList list(list_memory, a.columns, p.layout_heads == 1 ? 0 : h, first / p.block,
                   max(1, Tile::rows / p.block), p.block / piece, p.causal ? first / piece : 0,
                   0x7fffffff);
    const T* const q = a.q.at(b, h);
    const T* const dout = a.dout.at(b, h);
    while (const int count = list.next()) {
      AttentionCols<Tile> cols(list_memory, count, log_piece);
      const auto fetch = [&](int tile) {
        T* stage = reinterpret_cast<T*>(stages + tile % 2 * Shared::stage_bytes);
        const auto index = [&](int line_of_tile) { return cols.index(tile, line_of_tile); };
        load_lines<Tile, Tile::cols>(stage, q, a.q.row, p.head_dim, index);
        load_lines<Tile, Tile::cols>(stage + Tile::col_elements, dout, a.dout.row, p.head_dim,
                                     index);
        const long long numbers = (static_cast<long long>(b) * p.heads + h) * p.queries;
        load_numbers<Tile>(reinterpret_cast<Sum*>(stage + 2 * Tile::col_elements),
                           a.log_sums + numbers, a.means + numbers, index);
        commit_copies();
      };
      const int tiles = cols.tiles();
      fetch(0);
      for (int tile = 0; tile < tiles; ++tile) {
        cols.look(tile, line);
        wait_copies<0>();
        __syncthreads();  // the tile is there for all, and the other stage is free
        if (tile + 1 < tiles) fetch(tile + 1);
        if (!cols.any(0, Tile::col_tiles)) continue;
        const T* stage = reinterpret_cast<const T*>(stages + tile % 2 * Shared::stage_bytes);
        const T* douts = stage + Tile::col_elements;
        const Sum* log_sums = reinterpret_cast<const Sum*>(douts + Tile::col_elements);
        const Sum* means = log_sums + Tile::cols;
        typename Tile::Scores weights, ds;
        multiply_scores<Tile>(weights, keys, stage, cols);
        const bool edge = p.causal && !cols.all_from(first + warp_row + M::rows - 1);
        if (!Tile::whole || edge) cols.hide(weights, edge, after);
        multiply_scores<Tile>(ds, values, douts, cols);
#pragma unroll
        for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
          for (int i = 0; i < M::elements; ++i) {
            const int col = 8 * n + M::col(lane, i);
            weights[n][i] = exp2_of(weights[n][i] * scale - log_sums[col]);
            ds[n][i] = weights[n][i] * (ds[n][i] - means[col]);
          }
        multiply_weights<Tile>(dv, weights, douts, cols);
        multiply_weights<Tile>(dk, ds, stage, cols);
      }
    }
  }

  // A padded key has no weight anywhere.
  const unsigned char* const seen = p.seen ? p.seen + static_cast<long long>(b) * p.keys : nullptr;
  const auto store = [&](const typename Tile::Rows& sums, const AttentionRows<T>& target,
                         Sum factor) {
    store_rows<Tile>(sums, target.at(b, kv), target.row, p.head_dim, first, last + 1,
                     [&](int, int row) {
                       const bool padding = seen && seen[row] == 0;
                       return [=](Sum x) { return padding ? Sum(0) : x * factor; };
                     });
  };
  store(dk, a.dk, static_cast<Sum>(p.scale));
  store(dv, a.dv, Sum(1));
}

}  // namespace bs::cuda::device
