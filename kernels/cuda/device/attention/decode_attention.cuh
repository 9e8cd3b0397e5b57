#pragma once
// Attention of few queries to many keys. All heads that share keys are rows of one product, so that
// keys are read once. Each warp meets keys of its own, 16 at a time, in stages of its own, and no
// warp waits for another before it has met them all.
#include <bs/kernels/cuda/device/attention/decode_problem.cuh>
#include <bs/kernels/cuda/device/attention/sparse_attention.cuh>
#include <bs/kernels/cuda/device/ptx/acquire.cuh>

namespace bs::cuda::device {

/// Extents of one kernel; `Dim` is what head_dim and value_dim are padded to.
template <class T_, int Dim_, int Warps_, int Stages_, unsigned Rules_>
struct DecodeTile {
  using T = T_;
  using M = Mma<T>;
  using Sum = typename M::Sum;
  using Head = AttentionHead<T, Sum, Rules_>;
  static constexpr unsigned rules = Rules_;
  static constexpr int dim = Dim_, warps = Warps_, stages = Stages_;
  static constexpr int threads = 32 * warps, rows = M::rows, keys = 16;
  static constexpr int halves = rows / 8, col_tiles = keys / 8, dim_tiles = dim / 8;
  static constexpr int slots = dim / 32;  ///< of a row over a warp
  static constexpr int ld = dim + pack_size<T>;
  using Scores = Sum[col_tiles][M::elements];
  using Rows = Sum[dim_tiles][M::elements];

  struct Stage {
    alignas(16) T keys[DecodeTile::keys * ld], values[DecodeTile::keys * ld];
    int numbers[DecodeTile::keys];  ///< of its keys, -1 where there is none
  };
  struct Shared {
    alignas(16) T queries[rows * ld];
    Stage stages[warps][DecodeTile::stages];
    unsigned wrong;  ///< rows to make anew, a bit each
    int last;        ///< whether this CTA is the last of its tile to be done
    int padding[2];
  };
  /// What is known of a row behind some keys: sums of values, the greatest score in powers of two,
  /// and the sum of weights.
  struct Row {
    alignas(16) Sum values[dim];
    Sum top, sum, padding[2];
  };
  using Found = Row[rows];
  static_assert(sizeof(Found) <= sizeof(Stage));
};

/// A tile of queries, and which part of its keys.
struct DecodeItem {
  int tile, part;
  int sequence, head, heads;  ///< heads [head, head + heads)
  int line;                   ///< row of blocks
  int first, queries;         ///< places [first, first + queries)

  template <class T, class Sum>
  __device__ explicit DecodeItem(const DecodeArguments<T, Sum>& a) {
    const AttentionProblem& p = a.forward.problem;
    tile = static_cast<int>(blockIdx.x) / a.parts;
    part = static_cast<int>(blockIdx.x) % a.parts;
    const int top = p.first_query / p.block, end = p.first_query + p.queries;
    const int lines = (end - 1) / p.block - top + 1, shares = (p.group + a.heads - 1) / a.heads;
    const int share = tile / lines % shares, of_keys = tile / lines / shares;
    const int kv_heads = p.heads / p.group;
    line = top + tile % lines;
    sequence = of_keys / kv_heads;
    head = of_keys % kv_heads * p.group + share * a.heads;
    heads = min(a.heads, p.group - share * a.heads);
    first = max(p.first_query, line * p.block);
    queries = min(end, (line + 1) * p.block) - first;
  }
  __device__ int rows() const { return heads * queries; }
  __device__ int head_of(int row) const { return head + row / queries; }
  __device__ int query_of(int row) const { return first + row % queries; }
};

/// The first of `at[low, high)`, which ascend, that is `least` or more: a warp looks at 32 a time.
__device__ inline int first_from(const int* at, int low, int high, int least) {
  while (low < high) {
    const int step = (high - low + 31) / 32;
    const int probe = low + static_cast<int>(threadIdx.x) % 32 * step;
    const int less = __popc(__ballot_sync(0xffffffffU, probe < high && at[probe] < least));
    if (less == 0) return low;
    high = min(high, low + less * step);
    low += (less - 1) * step + 1;
  }
  return low;
}

/// A key that a lane looks after: its number, and the row it lies in; -1 where there is none.
struct DecodeKey {
  int number, row;
};

/// The keys that a row of blocks lists, as far as any query of a tile may see them. They come in
/// units of 16, of which lanes l and l + 16 look after number l.
template <class Tile>
class DecodeKeys {
 public:
  __device__ DecodeKeys(const BlockLines& lines, const typename Tile::Head& head,
                        const DecodeItem& item, const KeyPages& pages)
      : at_(lines.at), seen_(head.seen()), pages_(pages) {
    const AttentionProblem& p = head.p;
    const long long line = static_cast<long long>(head.layout_head()) * lines.lines + item.line;
    log_block_ = 31 - __clz(p.block);
    first_ = Tile::rules & rule_window ? max(item.first + p.first, 0) : 0;
    end_ = max(min(p.keys, item.first + item.queries + p.last), 0);
    low_ = lines.offsets[line];
    high_ = lines.offsets[line + 1];
    const int past = (end_ + p.block - 1) >> log_block_;
    // Most often all that is listed is seen: the search waits for memory twice.
    if (low_ < high_ && at_[high_ - 1] >= past) high_ = first_from(at_, low_, high_, past);
    if constexpr (Tile::rules & rule_window)
      low_ = first_from(at_, low_, high_, first_ >> log_block_);
  }
  __device__ int units() const {
    return (((high_ - low_) << log_block_) + Tile::keys - 1) / Tile::keys;
  }
  __device__ DecodeKey look(int unit) const {
    const int i = unit * Tile::keys + static_cast<int>(threadIdx.x) % Tile::keys;
    const int entry = low_ + (i >> log_block_);
    if (entry >= high_) return {-1, -1};
    const int key = (at_[entry] << log_block_) + (i & ((1 << log_block_) - 1));
    if (key < first_ || key >= end_ || (seen_ && seen_[key] == 0)) return {-1, -1};
    return {key, pages_.row(key)};
  }

 private:
  const int* at_;
  const unsigned char* seen_;
  const KeyPages& pages_;
  int log_block_, first_, end_, low_, high_;
};

/// Asks for the keys and values that the lanes look after; zeros where there are none.
template <class Tile>
__device__ inline void copy_decode_keys(typename Tile::Stage& stage, const DecodeKey& of_lane,
                                        const AttentionRows<const typename Tile::T>& k,
                                        const AttentionRows<const typename Tile::T>& v,
                                        const AttentionProblem& p) {
  constexpr int vector = pack_size<typename Tile::T>, per_line = Tile::dim / vector;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < Tile::keys) stage.numbers[lane] = of_lane.number;
#pragma unroll 8
  for (int round = 0; round < Tile::keys * per_line / 32; ++round) {
    const int i = lane + 32 * round;
    const int line = i / per_line, at = i % per_line * vector;
    const int row = __shfl_sync(0xffffffffU, of_lane.row, line);
    const int to = line * Tile::ld + at;
    copy_async_16(stage.keys + to, k.data + row * k.row + at, row >= 0 && at < p.head_dim);
    copy_async_16(stage.values + to, v.data + row * v.row + at, row >= 0 && at < p.value_dim);
  }
}

/// The scores of a stage's keys; minus infinity where a query does not see one. `heads` and
/// `queries` are those of this lane's rows.
template <class Tile>
__device__ inline void decode_scores(typename Tile::Scores& scores, const typename Tile::T* rows,
                                     const typename Tile::Stage& stage,
                                     const typename Tile::Head (&heads)[2],
                                     const int (&queries)[2]) {
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
    for (int i = 0; i < M::elements; ++i) scores[n][i] = 0;
#pragma unroll 8
  for (int k = 0; k < Tile::dim; k += M::depth) {
    typename M::A a;
    M::template load_a<true>(a, rows + k, Tile::ld, lane);
    typename M::B b[2];
    load_b_pair<typename Tile::T, true>(b, stage.keys + k, Tile::ld, lane);
    M::multiply(scores[0], a, b[0]);
    M::multiply(scores[1], a, b[1]);
  }
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; ++n)
#pragma unroll
    for (int i = 0; i < M::elements; ++i) {
      const typename Tile::Head& head = heads[i / 2];
      const int query = queries[i / 2], key = stage.numbers[8 * n + M::col(lane, i)];
      if (key < 0 || !head.sees(query, key)) {
        scores[n][i] = minus_infinity<Sum>();
      } else if constexpr (!Tile::Head::plain) {
        scores[n][i] *= static_cast<Sum>(head.p.scale);
        head.shape(scores[n][i], query, key);
      }
    }
}

/// sums += weights * values of a stage.
template <class Tile>
__device__ inline void add_decode_values(typename Tile::Rows& sums,
                                         const typename Tile::Scores& weights,
                                         const typename Tile::Stage& stage) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < Tile::col_tiles; n += Chained<typename Tile::T>::tiles)
    multiply_weights_from<Tile>(n, sums, weights, stage.values, lane);
}

/// Four neighbouring sums of a row, of all parts of its keys.
template <class Tile>
struct DecodeSums {
  using Sum = typename Tile::Sum;
  using Row = typename Tile::Row;
  Sum values[4] = {0, 0, 0, 0}, top = minus_infinity<Sum>(), sum = 0;

  __device__ Sum shift() const { return top == minus_infinity<Sum>() ? Sum(0) : top; }

  /// What `count` parts found, added in their order. They lie `stride` bytes behind each other, and
  /// are loaded so many at a time, since each load is waited for.
  __device__ DecodeSums(const Row* first, int stride, int count, int column) {
    constexpr int at_once = 16;
    for (int from = 0; from < count; from += at_once) {
      Pack<Sum, 4> some[at_once];
      Sum tops[at_once], sums[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const bool there = from + i < count;
        const Row& row = *reinterpret_cast<const Row*>(reinterpret_cast<const char*>(first) +
                                                       static_cast<long long>(from + i) * stride);
        tops[i] = there ? row.top : minus_infinity<Sum>();
        sums[i] = there ? row.sum : 0;
        some[i] = {};
        if (there) some[i] = *reinterpret_cast<const Pack<Sum, 4>*>(row.values + column);
      }
      const Sum before = top;
#pragma unroll
      for (int i = 0; i < at_once; ++i) top = fmax(top, tops[i]);
      scale(exp2_of(before - shift()));
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const Sum factor = exp2_of(tops[i] - shift());
        sum += factor * sums[i];
#pragma unroll
        for (int j = 0; j < 4; ++j) values[j] += factor * some[i].at[j];
      }
    }
  }
  /// Adds a logit that has no value; in powers of two.
  __device__ void join(Sum logit) {
    const Sum before = top;
    top = fmax(top, logit);
    scale(exp2_of(before - shift()));
    sum += exp2_of(logit - shift());
  }

 private:
  __device__ void scale(Sum factor) {
    sum *= factor;
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] *= factor;
  }
};

/// Calls visit(row, column) for every fourth column of the rows of a tile.
template <class Tile, class Visit>
__device__ inline void each_decode_column(const DecodeItem& item, const Visit& visit) {
  constexpr int quads = Tile::dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < item.rows() * quads; i += Tile::threads)
    visit(i / quads, i % quads * 4);
}

/// What a warp found of its keys, by the fragments that it has.
template <class Tile>
__device__ inline void write_found(typename Tile::Found& found, const typename Tile::Rows& sums,
                                   const OnlineSoftmax<Tile>& softmax) {
  using M = typename Tile::M;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int h = 0; h < Tile::halves; ++h) {
    typename Tile::Row& row = found[M::row(lane, 2 * h)];
#pragma unroll
    for (int d = 0; d < Tile::dim_tiles; ++d)
#pragma unroll
      for (int i = 0; i < 2; ++i) row.values[8 * d + M::col(lane, i)] = sums[d][2 * h + i];
    if (lane % 4 == 0) {
      row.top = softmax.top[h];
      row.sum = softmax.sum[h];
    }
  }
}

/// Whether this CTA is the last of `parts` to be done, which then sees what all have written.
__device__ inline bool is_last_part(int* done, int parts, int& last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    last = add_acquire_release(done, 1) == parts - 1;
    if (last) *done = 0;
  }
  __syncthreads();
  return last;
}

/// Writes out and lse from what the parts found. A row that is not finite, though its weights are,
/// met a value that it does not see: it is made anew, key by key.
template <class Tile>
__device__ inline void finish_decode(const DecodeArguments<typename Tile::T, typename Tile::Sum>& a,
                                     const DecodeItem& item, const typename Tile::Row* found,
                                     int stride, int count, unsigned& wrong) {
  using T = typename Tile::T;
  using Sum = typename Tile::Sum;
  using Head = typename Tile::Head;
  const AttentionForward<T>& f = a.forward;
  const AttentionProblem& p = f.problem;
  if (threadIdx.x == 0) wrong = 0;
  __syncthreads();
  each_decode_column<Tile>(item, [&](int row, int column) {
    if (column >= p.value_dim) return;
    const Head head(p, f.scores, item.sequence, item.head_of(row));
    const int query = item.query_of(row);
    DecodeSums<Tile> all(found + row, stride, count, column);
    if (f.scores.sinks) all.join(f.scores.sinks[head.h] * static_cast<Sum>(Head::log2_e));
    Sum zero = 0;  // unless a value is not finite
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      all.values[j] = all.sum == 0 ? Sum(0) : all.values[j] / all.sum;
      zero += all.values[j] * 0;
    }
    if (zero != 0 && all.sum == all.sum) atomicOr(&wrong, 1U << row);
    *reinterpret_cast<Pack<T, 4>*>(head.queries_of(f.out) + query * f.out.row + column) =
        narrow_pack<T, 4>(all.values);
    if (column == 0)
      f.lse[head.row(query)] =
          all.sum == 0 ? minus_infinity<Sum>()
                       : static_cast<Sum>(0.6931471805599453) * (all.shift() + log2(all.sum));
  });
  __syncthreads();
  for (int row = static_cast<int>(threadIdx.x) / 32; row < item.rows(); row += Tile::warps)
    if (wrong >> row & 1)
      attention_single_query<T, Tile::rules, Tile::slots>(
          f, Head(p, f.scores, item.sequence, item.head_of(row)), item.query_of(row),
          [&](int key) { return a.pages.row(key); });
}

/// Grid: the parts of each tile, side by side.
template <class Tile>
__device__ inline void decode_attention(
    const DecodeArguments<typename Tile::T, typename Tile::Sum>& a) {
  using T = typename Tile::T;
  using M = typename Tile::M;
  using Sum = typename Tile::Sum;
  using Head = typename Tile::Head;
  using Found = typename Tile::Found;
  extern __shared__ uint4 shared_memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(shared_memory);
  const AttentionForward<T>& f = a.forward;
  const AttentionProblem& p = f.problem;
  const DecodeItem item(a);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

  constexpr int vector = pack_size<T>, per_line = Tile::dim / vector;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::rows * per_line; i += Tile::threads) {
    const int row = i / per_line, at = i % per_line * vector;
    const int of = min(row, item.rows() - 1), query = item.query_of(of) - p.first_query;
    copy_async_16(shared.queries + row * Tile::ld + at,
                  f.q.at(item.sequence, item.head_of(of)) + query * f.q.row + at,
                  row < item.rows() && at < p.head_dim);
  }
  commit_copies();

  // A row beyond the last sees what the last one sees, and nobody reads what becomes of it.
  const int row_of[2] = {min(M::row(lane, 0), item.rows() - 1),
                         min(M::row(lane, 2), item.rows() - 1)};
  const int queries[2] = {item.query_of(row_of[0]), item.query_of(row_of[1])};
  const Head heads[2] = {{p, f.scores, item.sequence, item.head_of(row_of[0])},
                         {p, f.scores, item.sequence, item.head_of(row_of[1])}};
  const AttentionRows<const T> k{heads[0].keys_of(f.k), 0, 0, f.k.row};
  const AttentionRows<const T> v{heads[0].keys_of(f.v), 0, 0, f.v.row};
  const DecodeKeys<Tile> keys(f.rows, heads[0], item, a.pages);
  const long long units = keys.units();
  const int begin = static_cast<int>(units * item.part / a.parts);
  const int end = static_cast<int>(units * (item.part + 1) / a.parts);
  wait_copies<0>();
  __syncthreads();

  auto& stages = shared.stages[warp];
  int ahead = begin + warp;  // the unit to ask for next; its numbers are on their way
  DecodeKey next = keys.look(ahead);
  const auto fetch = [&](int stage) {
    if (ahead < end) copy_decode_keys<Tile>(stages[stage], next, k, v, p);
    commit_copies();
    ahead += Tile::warps;
    next = keys.look(ahead);
  };
  for (int stage = 0; stage + 1 < Tile::stages; ++stage) fetch(stage);
  const Sum scale = Head::plain ? static_cast<Sum>(p.scale * Head::log2_e) : Sum(1);
  OnlineSoftmax<Tile> softmax;
  typename Tile::Rows sums = {};
  int stage = 0;
  for (int unit = begin + warp; unit < end; unit += Tile::warps) {
    wait_copies<Tile::stages - 2>();
    __syncwarp();  // the stage is there for all lanes, and all are done with the one before
    fetch(stage == 0 ? Tile::stages - 1 : stage - 1);
    typename Tile::Scores scores;
    decode_scores<Tile>(scores, shared.queries, stages[stage], heads, queries);
    softmax.fold(scores, sums, scale);
    add_decode_values<Tile>(sums, scores, stages[stage]);
    stage = stage + 1 < Tile::stages ? stage + 1 : 0;
  }
  softmax.finish();
  wait_copies<0>();
  __syncwarp();
  write_found<Tile>(reinterpret_cast<Found&>(stages[0]), sums, softmax);
  __syncthreads();

  const auto* const of_warps = reinterpret_cast<const typename Tile::Row*>(&shared.stages[0][0]);
  constexpr int stride = sizeof(shared.stages[0]);
  if (a.parts == 1)
    return finish_decode<Tile>(a, item, of_warps, stride, Tile::warps, shared.wrong);
  auto* const of_parts =
      reinterpret_cast<Found*>(a.sums) + static_cast<long long>(item.tile) * a.parts;
  each_decode_column<Tile>(item, [&](int row, int column) {
    const DecodeSums<Tile> all(of_warps + row, stride, Tile::warps, column);
    typename Tile::Row& to = of_parts[item.part][row];
#pragma unroll
    for (int j = 0; j < 4; ++j) to.values[column + j] = all.values[j];
    if (column == 0) {
      to.top = all.top;
      to.sum = all.sum;
    }
  });
  if (is_last_part(a.done + item.tile, a.parts, shared.last))
    finish_decode<Tile>(a, item, of_parts[0], sizeof(Found), a.parts, shared.wrong);
}

}  // namespace bs::cuda::device
