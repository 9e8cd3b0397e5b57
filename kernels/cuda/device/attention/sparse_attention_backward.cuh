#pragma once
// Gradients of sparse_attention.cuh. Weights are made anew from the scores and the rows' logs. One
// kernel walks rows of queries for dq, another columns of keys for dk and dv: nothing is added to
// memory, so the order of all sums is fixed.
#include <bs/kernels/cuda/device/attention/sparse_attention.cuh>

namespace bs::cuda::device {

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
  for (int d = threadIdx.x % 32; d < p.value_dim; d += 32) sum += widen(x[d]) * widen(y[d]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  if (threadIdx.x % 32 != 0) return;
  const Sum log_sum = a.lse[at];
  a.log_sums[at] =
      log_sum == minus_infinity<Sum>() ? -log_sum : log_sum * static_cast<Sum>(1.4426950408889634);
  a.means[at] = sum;
}

/// Weights of this warp's scores, and gradients of them by `dp` products of values.
template <class Tile, bool turned, class LogSum, class Mean>
__device__ void weigh_scores(typename Tile::Scores& weights, typename Tile::Scores& ds,
                             const AttentionCols<Tile>& cols, const typename Tile::Head& head,
                             int row, typename Tile::Sum scale, const typename Tile::Scores& slopes,
                             const LogSum& log_sum, const Mean& mean) {
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  typename Tile::Scores factors;
  if constexpr (Tile::rules & rule_dropout) drop_factors<Tile, turned>(factors, cols, head, row);
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
    for (int i = 0; i < M::elements; ++i) {
      const Sum weight = exp2_of(weights[n][i] * scale - log_sum(n, i));
      Sum dp = ds[n][i];
      weights[n][i] = weight;
      if constexpr (Tile::rules & rule_dropout) {
        weights[n][i] *= factors[n][i];
        dp *= factors[n][i];
      }
      ds[n][i] = weight * (dp - mean(n, i));
      if constexpr (Tile::rules & rule_softcap) ds[n][i] *= slopes[n][i];
    }
}

/// Queries and gradients of the output, stages of keys and values, the list.
template <class Tile>
struct QueryShared {
  static constexpr int bytes = (2 * Tile::row_elements + 2 * Tile::stages * Tile::col_elements) *
                                   static_cast<int>(sizeof(typename Tile::T)) +
                               static_cast<int>(sizeof(BlockList::Memory));
};

/// dq of a tile of queries.
template <class Tile>
__device__ inline void attention_query_gradient(const AttentionBackward<typename Tile::T>& a,
                                                unsigned work) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  using Head = typename Tile::Head;
  extern __shared__ uint4 shared_memory[];
  T* const queries = reinterpret_cast<T*>(shared_memory);
  T* const douts = queries + Tile::row_elements;
  T* const stages = douts + Tile::row_elements;  // keys 0, values 0, keys 1, values 1
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
  const T* const k = head.keys_of(a.k);
  const T* const v = head.keys_of(a.v);
  const unsigned char* const seen = head.seen();
  const auto line_of = [&](int l) { return own.has(first + l) ? first + l : -1; };
  load_lines<Tile, Tile::rows>(queries, head.queries_of(a.q), a.q.row, p.head_dim, line_of);
  load_lines<Tile, Tile::rows>(douts, head.queries_of(a.dout), a.dout.row, p.value_dim, line_of);

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * M::rows;
  int line[Tile::halves];
  Sum log_sum[Tile::halves], mean[Tile::halves];
#pragma unroll
  for (int i = 0; i < Tile::halves; ++i) {
    line[i] = (warp_row + 8 * i) / p.block;
    const int row = first + warp_row + M::row(threadIdx.x % 32, 2 * i);
    const long long at = head.row(min(max(row, own.begin), own.end - 1));
    log_sum[i] = a.log_sums[at];
    mean[i] = a.means[at];
  }
  const auto after = [&](int row, int key) { return key > first + warp_row + row + p.last; };
  const Sum scale = Head::plain ? static_cast<Sum>(p.scale * Head::log2_e) : Sum(1);
  const int edge_from = min(first + warp_row + p.last, head.keys - 1) - 6;
  typename Tile::Rows sums = {};

  while (const int count = list.next()) {
    AttentionCols<Tile> cols(list_memory, count, log_piece, {0, head.keys});
    const auto fetch = [&](int tile) {
      T* stage = stages + tile % Tile::stages * 2 * Tile::col_elements;
      const auto index = [&](int line_of_tile) {
        const int key = cols.index(tile, line_of_tile);
        return seen && key >= 0 && seen[key] == 0 ? -1 : key;
      };
      load_lines<Tile, Tile::cols>(stage, k, a.k.row, p.head_dim, index);
      load_lines<Tile, Tile::cols>(stage + Tile::col_elements, v, a.v.row, p.value_dim, index);
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
      typename Tile::Scores weights, ds, slopes;
      multiply_scores<Tile>(weights, queries, stage, cols);
      if constexpr (Head::plain) {
        const bool edge = seen || cols.any_from(edge_from);
        if (!Tile::whole || edge) cols.hide(weights, edge, after);
      } else {
        shape_scores<Tile, false>(weights, Tile::rules & rule_softcap ? &slopes : nullptr, cols,
                                  head, own, first + warp_row);
      }
      multiply_scores<Tile>(ds, douts, stage + Tile::col_elements, cols);
      weigh_scores<Tile, false>(
          weights, ds, cols, head, first + warp_row, scale, slopes,
          [&](int, int i) { return log_sum[i / 2]; }, [&](int, int i) { return mean[i / 2]; });
      multiply_weights<Tile>(sums, ds, stage, cols);
    }
  }
  const auto wrong = store_rows<Tile>(
      sums, head.queries_of(a.dq), a.dq.row, p.head_dim, first, own,
      [&](int, int) { return static_cast<Sum>(p.scale); },
      [&](int half) { return log_sum[half] == log_sum[half]; });
  mend_rows<Tile>(wrong, first, [&](int row) {
    attention_single_query_gradient<T, Tile::rules, Tile::slots>(a, head, row);
  });
}

/// Keys and values, stages of queries, gradients of the output and two numbers for each of them
/// (log_sum and mean), the list.
template <class Tile>
struct KeyShared {
  static constexpr int stage_bytes =
      2 * Tile::col_elements * static_cast<int>(sizeof(typename Tile::T)) +
      2 * Tile::cols * static_cast<int>(sizeof(typename Tile::Sum));
  static constexpr int bytes = 2 * Tile::row_elements * static_cast<int>(sizeof(typename Tile::T)) +
                               Tile::stages * stage_bytes +
                               static_cast<int>(sizeof(BlockList::Memory));
};

/// Brings two numbers for each column of a tile.
template <class Tile, class Index>
__device__ void load_numbers(typename Tile::Sum* shared, const typename Tile::Sum* log_sums,
                             const typename Tile::Sum* means, const Index& index) {
  using Sum = typename Tile::Sum;
  for (int i = threadIdx.x; i < 2 * Tile::cols; i += Tile::threads) {
    const int from = index(i % Tile::cols);
    copy_async<sizeof(Sum)>(shared + i, (i < Tile::cols ? log_sums : means) + from, from >= 0);
  }
}

/// Pieces of queries that keys [from, to) may be seen by, as far as distances tell.
template <class Tile>
__device__ inline AttentionRange attention_query_pieces(const AttentionProblem& p, int from, int to,
                                                        int piece) {
  AttentionRange pieces{max(from - p.last, 0) / piece, 0x7fffffff};
  if constexpr (Tile::rules & rule_window) {
    const int last = to - 1 - p.first;
    pieces.end = last < 0 ? 0 : last / piece + 1;
  }
  return pieces;
}

/// dk, or dv, or both, of a tile of keys. Scores stand transposed here: keys are rows, queries
/// columns.
template <class Tile, bool with_dk, bool with_dv>
__device__ inline void attention_key_gradient(const AttentionBackward<typename Tile::T>& a,
                                              unsigned work) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  using Head = typename Tile::Head;
  using Shared = KeyShared<Tile>;
  extern __shared__ uint4 shared_memory[];
  T* const keys = reinterpret_cast<T*>(shared_memory);
  T* const values = keys + Tile::row_elements;
  char* const stages = reinterpret_cast<char*>(values + Tile::row_elements);
  auto& list_memory =
      *reinterpret_cast<BlockList::Memory*>(stages + Tile::stages * Shared::stage_bytes);

  const AttentionProblem& p = a.problem;
  int sequence, kv;
  const int number = attention_tile_of(work, p.tiles, false, sequence, kv, p.heads / p.group);
  const int first = number * Tile::rows;
  const int piece = min(p.block, Tile::cols);
  const int log_piece = 31 - __clz(piece);
  const Head leader(p, a.scores, sequence, kv * p.group);
  const AttentionRange own{0, leader.keys};
  if (first >= own.end) return;
  const auto line_of = [&](int l) { return own.has(first + l) ? first + l : -1; };
  load_lines<Tile, Tile::rows>(keys, leader.keys_of(a.k), a.k.row, p.head_dim, line_of);
  load_lines<Tile, Tile::rows>(values, leader.keys_of(a.v), a.v.row, p.value_dim, line_of);

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * M::rows;
  int line[Tile::halves];
#pragma unroll
  for (int i = 0; i < Tile::halves; ++i) line[i] = (warp_row + 8 * i) / p.block;
  const auto after = [&](int row, int query) { return first + warp_row + row > query + p.last; };
  const Sum scale = Head::plain ? static_cast<Sum>(p.scale * Head::log2_e) : Sum(1);
  // Heads beyond 128 leave no register for it: ptxas would spill for sm_100.
  const auto whole_from = [&] {
    return max(first + warp_row + M::rows - 1 - p.last, leader.begin);
  };
  const int kept_whole_from = whole_from();
  const AttentionRange pieces =
      attention_query_pieces<Tile>(p, first, min(first + Tile::rows, own.end), piece);
  typename Tile::Rows dk = {};
  typename Tile::Rows dv = {};

  for (int h = kv * p.group; h < (kv + 1) * p.group; ++h) {
    const Head head(p, a.scores, sequence, h);
    BlockList list(list_memory, a.columns, head.layout_head(), first / p.block,
                   max(1, Tile::rows / p.block), p.block / piece, pieces.begin, pieces.end);
    const T* const q = head.queries_of(a.q);
    const T* const dout = head.queries_of(a.dout);
    while (const int count = list.next()) {
      AttentionCols<Tile> cols(list_memory, count, log_piece, {head.begin, head.end});
      const auto fetch = [&](int tile) {
        T* stage = reinterpret_cast<T*>(stages + tile % Tile::stages * Shared::stage_bytes);
        const auto index = [&](int line_of_tile) { return cols.index(tile, line_of_tile); };
        load_lines<Tile, Tile::cols>(stage, q, a.q.row, p.head_dim, index);
        load_lines<Tile, Tile::cols>(stage + Tile::col_elements, dout, a.dout.row, p.value_dim,
                                     index);
        const long long numbers = head.row(0);
        load_numbers<Tile>(reinterpret_cast<Sum*>(stage + 2 * Tile::col_elements),
                           a.log_sums + numbers, a.means + numbers, index);
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
        wait_copies<0>();
        __syncthreads();  // the tile is there for all, and the other stage is free
        if (Tile::stages == 2 && tile + 1 < tiles) fetch(tile + 1);
        if (!cols.any(0, Tile::col_tiles)) continue;
        const T* stage =
            reinterpret_cast<const T*>(stages + tile % Tile::stages * Shared::stage_bytes);
        const T* douts = stage + Tile::col_elements;
        const Sum* log_sums = reinterpret_cast<const Sum*>(douts + Tile::col_elements);
        const Sum* means = log_sums + Tile::cols;
        typename Tile::Scores weights, slopes, ds = {};
        multiply_scores<Tile>(weights, keys, stage, cols);
        if constexpr (Head::plain) {
          const bool edge = !cols.all_from(Tile::dim > 128 ? whole_from() : kept_whole_from) ||
                            cols.any_from(head.end - 7);
          if (!Tile::whole || edge) cols.hide(weights, edge, after);
        } else {
          shape_scores<Tile, true>(weights, Tile::rules & rule_softcap ? &slopes : nullptr, cols,
                                   head, own, first + warp_row);
        }
        if constexpr (with_dk) multiply_scores<Tile>(ds, values, douts, cols);
        weigh_scores<Tile, true>(
            weights, ds, cols, head, first + warp_row, scale, slopes,
            [&](int n, int i) { return log_sums[8 * n + M::col(lane_of<Tile>(), i)]; },
            [&](int n, int i) { return means[8 * n + M::col(lane_of<Tile>(), i)]; });
        if constexpr (with_dv) multiply_weights<Tile>(dv, weights, douts, cols);
        if constexpr (with_dk) multiply_weights<Tile>(dk, ds, stage, cols);
      }
    }
  }

  // A padded key has no weight anywhere.
  const unsigned char* const seen = leader.seen();
  WrongRows<Tile> wrong = {};
  const auto store = [&](const typename Tile::Rows& sums, const AttentionRows<T>& target,
                         int columns, Sum factor) {
    const auto more = store_rows<Tile>(
        sums, leader.keys_of(target), target.row, columns, first, own,
        [&](int, int row) { return seen && seen[row] == 0 ? Sum(0) : factor; },
        [](int) { return true; });
#pragma unroll
    for (int h = 0; h < Tile::halves; ++h) wrong.lanes[h] |= more.lanes[h];
  };
  if constexpr (with_dk) store(dk, a.dk, p.head_dim, static_cast<Sum>(p.scale));
  if constexpr (with_dv) store(dv, a.dv, p.value_dim, Sum(1));
  mend_rows<Tile>(wrong, first, [&](int key) {
    attention_single_key_gradient<T, Tile::rules, Tile::slots, with_dk, with_dv>(a, sequence, kv,
                                                                                 key);
  });
}

}  // namespace bs::cuda::device
