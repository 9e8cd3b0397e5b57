#pragma once
// Single rows of attention, a warp a row, by plain sums over the keys (or queries) that it meets:
// for rows into which a tile brought what is hidden and not finite, for shapes whose tiles do not
// fit the GPU's shared memory, and for gradients of biases.
#include <bs/kernels/cuda/device/attention/attention_head.cuh>
#include <bs/kernels/cuda/device/attention/block_list.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>

namespace bs::cuda::device {

template <class T>
using AttentionForward = AttentionForwardArguments<T, typename Mma<T>::Sum>;
template <class T>
using AttentionBackward = AttentionBackwardArguments<T, typename Mma<T>::Sum>;

/// A row of up to 32 * slots elements: lane l has those numbered l + 32 i.
template <class Sum, int slots>
struct AttentionVector {
  Sum at[slots];

  template <class T>
  __device__ void load(const T* from, int n) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < slots; ++i) at[i] = lane + 32 * i < n ? widen(from[lane + 32 * i]) : Sum(0);
  }
  template <class T>
  __device__ void store(T* to, int n) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < slots; ++i)
      if (lane + 32 * i < n) to[lane + 32 * i] = narrow<T>(at[i]);
  }
  __device__ void scale(Sum factor) {
#pragma unroll
    for (int i = 0; i < slots; ++i) at[i] *= factor;
  }
  template <class T>
  __device__ void add(Sum factor, const T* from, int n) {
    AttentionVector x;
    x.load(from, n);
#pragma unroll
    for (int i = 0; i < slots; ++i) at[i] += factor * x.at[i];
  }
  /// The product with a row in memory, known to all lanes.
  template <class T>
  __device__ Sum dot(const T* from, int n) const {
    AttentionVector x;
    x.load(from, n);
    Sum sum = 0;
#pragma unroll
    for (int i = 0; i < slots; ++i) sum += at[i] * x.at[i];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    return sum;
  }
};

/// Where the keys of a sequence lie that stand in their order.
struct KeysInOrder {
  __device__ int operator()(int key) const { return key; }
};

/// out and lse of one query. Key number i lies in row place(i).
template <class T, unsigned rules, int slots, class Place = KeysInOrder>
__device__ inline void attention_single_query(
    const AttentionForward<T>& a, const AttentionHead<T, typename Mma<T>::Sum, rules>& head,
    int query, const Place& place = {}) {
  using Sum = typename Mma<T>::Sum;
  using Head = AttentionHead<T, Sum, rules>;
  const AttentionProblem& p = a.problem;
  AttentionVector<Sum, slots> q, sums = {};
  q.load(head.queries_of(a.q) + query * a.q.row, p.head_dim);
  Sum top = minus_infinity<Sum>(), sum = 0;
  const auto join = [&](Sum score) {  // the weight, with all before brought to the same shift
    const Sum peak = fmax(top, score);
    const Sum shift = peak == minus_infinity<Sum>() ? Sum(0) : peak;
    const Sum factor = exp2_of(top - shift), weight = exp2_of(score - shift);
    sums.scale(factor);
    sum = sum * factor + weight;
    top = peak;
    return weight;
  };
  AttentionWalk<Head>{head}.keys(a.rows, query, [&](int key) {
    const int row = place(key);
    Sum score = q.dot(head.keys_of(a.k) + row * a.k.row, p.head_dim) * static_cast<Sum>(p.scale);
    head.shape(score, query, key);
    if (score == minus_infinity<Sum>()) return;
    const Sum weight = join(score) * head.factor(query, key);
    sums.add(weight, head.keys_of(a.v) + row * a.v.row, p.value_dim);
  });
  if (a.scores.sinks) join(a.scores.sinks[head.h] * static_cast<Sum>(Head::log2_e));
  if (threadIdx.x % 32 == 0)
    a.lse[head.row(query)] =
        sum == 0 ? minus_infinity<Sum>() : static_cast<Sum>(0.6931471805599453) * (top + log2(sum));
  sums.scale(sum == 0 ? Sum(0) : 1 / sum);
  sums.store(head.queries_of(a.out) + query * a.out.row, p.value_dim);
}

/// What backward knows of one score.
template <class Sum>
struct AttentionWeight {
  Sum weight, ds;  ///< dropped; and by the score, before softcap and scale
  Sum slope;
};

/// The weight of a key by vectors of its query and of the output's gradient there, or of a query by
/// vectors of its key and value.
template <class T, unsigned rules, int slots>
__device__ inline AttentionWeight<typename Mma<T>::Sum> attention_weight(
    const AttentionBackward<T>& a, const AttentionHead<T, typename Mma<T>::Sum, rules>& head,
    int query, int key, typename Mma<T>::Sum product, typename Mma<T>::Sum dp) {
  using Sum = typename Mma<T>::Sum;
  Sum score = product * static_cast<Sum>(a.problem.scale);
  const Sum slope = head.shape(score, query, key);
  if (score == minus_infinity<Sum>()) return {0, 0, 0};
  const long long row = head.row(query);
  const Sum weight = exp2_of(score - a.log_sums[row]);
  const Sum factor = head.factor(query, key);
  return {weight * factor, weight * (dp * factor - a.means[row]), slope};
}

/// dq of one query.
template <class T, unsigned rules, int slots>
__device__ inline void attention_single_query_gradient(
    const AttentionBackward<T>& a, const AttentionHead<T, typename Mma<T>::Sum, rules>& head,
    int query) {
  using Sum = typename Mma<T>::Sum;
  const AttentionProblem& p = a.problem;
  AttentionVector<Sum, slots> q, dout, sums = {};
  q.load(head.queries_of(a.q) + query * a.q.row, p.head_dim);
  dout.load(head.queries_of(a.dout) + query * a.dout.row, p.value_dim);
  AttentionWalk<AttentionHead<T, Sum, rules>>{head}.keys(a.rows, query, [&](int key) {
    const T* const k = head.keys_of(a.k) + key * a.k.row;
    const Sum product = q.dot(k, p.head_dim);
    const Sum dp = dout.dot(head.keys_of(a.v) + key * a.v.row, p.value_dim);
    const auto w = attention_weight<T, rules, slots>(a, head, query, key, product, dp);
    if (w.slope != 0) sums.add(w.ds * w.slope * static_cast<Sum>(p.scale), k, p.head_dim);
  });
  sums.store(head.queries_of(a.dq) + query * a.dq.row, p.head_dim);
}

/// dk or dv, or both, of one key of head `kv` of k and v. Its group's heads come one by one.
template <class T, unsigned rules, int slots, bool with_dk, bool with_dv>
__device__ inline void attention_single_key_gradient(const AttentionBackward<T>& a, int sequence,
                                                     int kv, int key) {
  using Sum = typename Mma<T>::Sum;
  using Head = AttentionHead<T, Sum, rules>;
  const AttentionProblem& p = a.problem;
  AttentionVector<Sum, slots> k, v, dk = {}, dv = {};
  {
    const Head head(p, a.scores, sequence, kv * p.group);
    k.load(head.keys_of(a.k) + key * a.k.row, p.head_dim);
    v.load(head.keys_of(a.v) + key * a.v.row, p.value_dim);
  }
  for (int h = kv * p.group; h < (kv + 1) * p.group; ++h) {
    const Head head(p, a.scores, sequence, h);
    AttentionWalk<Head>{head}.queries(a.columns, key, [&](int query) {
      const T* const q = head.queries_of(a.q) + query * a.q.row;
      const T* const dout = head.queries_of(a.dout) + query * a.dout.row;
      const Sum product = k.dot(q, p.head_dim), dp = v.dot(dout, p.value_dim);
      const auto w = attention_weight<T, rules, slots>(a, head, query, key, product, dp);
      if (w.slope == 0 && w.weight == 0) return;
      if constexpr (with_dk) dk.add(w.ds * w.slope * static_cast<Sum>(p.scale), q, p.head_dim);
      if constexpr (with_dv) dv.add(w.weight, dout, p.value_dim);
    });
  }
  const Head head(p, a.scores, sequence, kv * p.group);
  if constexpr (with_dk) dk.store(head.keys_of(a.dk) + key * a.dk.row, p.head_dim);
  if constexpr (with_dv) dv.store(head.keys_of(a.dv) + key * a.dv.row, p.value_dim);
}

/// The warp's number in the grid.
__device__ inline long long attention_warp() {
  return (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
}

/// f(head, query) for the query of this warp, if it has one: all queries have one each, and a
/// sequence has `length` at most. `a` is what a pass reads and writes.
template <class T, unsigned rules, class A, class F>
__device__ inline void attention_warp_query(const A& a, int length, const F& f) {
  const long long at = attention_warp();
  const AttentionProblem& p = a.problem;
  const auto sequence = static_cast<int>(at / length / p.heads);
  if (sequence > p.last_sequence) return;
  const AttentionHead<T, typename Mma<T>::Sum, rules> head(p, a.scores, sequence,
                                                           static_cast<int>(at / length % p.heads));
  const int query = head.begin + static_cast<int>(at % length);
  if (query < head.end) f(head, query);
}

template <class T, unsigned rules, int slots>
__device__ inline void attention_forward_singly(const AttentionForward<T>& a, int length) {
  attention_warp_query<T, rules>(a, length, [&](const auto& head, int query) {
    attention_single_query<T, rules, slots>(a, head, query);
  });
}

template <class T, unsigned rules, int slots>
__device__ inline void attention_query_gradient_singly(const AttentionBackward<T>& a, int length) {
  attention_warp_query<T, rules>(a, length, [&](const auto& head, int query) {
    attention_single_query_gradient<T, rules, slots>(a, head, query);
  });
}

template <class T, unsigned rules, int slots>
__device__ inline void attention_key_gradient_singly(const AttentionBackward<T>& a, int length) {
  const long long at = attention_warp();
  const AttentionProblem& p = a.problem;
  const int heads = p.heads / p.group;
  const auto sequence = static_cast<int>(at / length / heads);
  if (sequence > p.last_sequence) return;
  const auto kv = static_cast<int>(at / length % heads), key = static_cast<int>(at % length);
  const AttentionHead<T, typename Mma<T>::Sum, rules> head(p, a.scores, sequence, kv * p.group);
  if (key < head.keys)
    attention_single_key_gradient<T, rules, slots, true, true>(a, sequence, kv, key);
}

/// dbias: a warp has a query's row of it, and the entries and heads that share it come one by one.
template <class T, unsigned rules, int slots>
__device__ inline void attention_bias_gradient(const AttentionBackward<T>& a, int length) {
  using Sum = typename Mma<T>::Sum;
  using Head = AttentionHead<T, Sum, rules>;
  const AttentionProblem& p = a.problem;
  const long long at = attention_warp();
  const auto of_batch = static_cast<int>(at / length / a.bias_heads);
  if (of_batch >= a.bias_batches) return;
  const auto of_head = static_cast<int>(at / length % a.bias_heads);
  const int query = p.first_query + static_cast<int>(at % length);
  Sum* const to = a.dbias.at(of_batch, of_head) + at % length * a.dbias.row;
  // Kernels on wgmma may have added something not finite.
  for (int key = static_cast<int>(threadIdx.x) % 32; key < p.keys; key += 32) to[key] = 0;
  __syncwarp();
  for (int b = of_batch; b <= p.last_sequence; b += a.bias_batches)
    for (int h = of_head; h < p.heads; h += a.bias_heads) {
      const Head head(p, a.scores, b, h);
      AttentionVector<Sum, slots> q, dout;
      q.load(head.queries_of(a.q) + query * a.q.row, p.head_dim);
      dout.load(head.queries_of(a.dout) + query * a.dout.row, p.value_dim);
      AttentionWalk<Head>{head}.keys(a.rows, query, [&](int key) {
        const Sum product = q.dot(head.keys_of(a.k) + key * a.k.row, p.head_dim);
        const Sum dp = dout.dot(head.keys_of(a.v) + key * a.v.row, p.value_dim);
        const auto w = attention_weight<T, rules, slots>(a, head, query, key, product, dp);
        if (threadIdx.x % 32 == 0) to[key] += w.ds;
      });
    }
}

/// Sums of ds over diagonals: a warp has one of them, that of key - query number = z - height + 1.
template <class T, unsigned rules, int slots>
__device__ inline void attention_diagonal_gradient(const AttentionBackward<T>& a, int diagonals) {
  using Sum = typename Mma<T>::Sum;
  using Head = AttentionHead<T, Sum, rules>;
  const AttentionProblem& p = a.problem;
  const long long at = attention_warp();
  const auto of_head = static_cast<int>(at / diagonals);
  if (of_head >= a.table_heads) return;
  const int shift = static_cast<int>(at % diagonals) - a.height + 1 - p.first_query;
  Sum sum = 0;  // key = place of the query + shift
  for (int b = 0; b <= p.last_sequence; ++b)
    for (int h = of_head; h < p.heads; h += a.table_heads) {
      const Head head(p, a.scores, b, h);
      const unsigned char* const seen = head.seen();
      const long long lines = static_cast<long long>(head.layout_head()) * a.rows.lines;
      int query = max(head.begin, -shift);
      const int end = min(head.end, head.keys - shift);
      while (query < end) {
        const int row = query / p.block, column = (query + shift) / p.block;
        const int stop = min(end, min((row + 1) * p.block, (column + 1) * p.block - shift));
        if (find_block(a.rows, lines + row, column) < 0) query = stop;
        for (; query < stop; ++query) {
          const int key = query + shift;
          if ((seen && seen[key] == 0) || !head.sees(query, key)) continue;
          AttentionVector<Sum, slots> q, dout;
          q.load(head.queries_of(a.q) + query * a.q.row, p.head_dim);
          dout.load(head.queries_of(a.dout) + query * a.dout.row, p.value_dim);
          const Sum product = q.dot(head.keys_of(a.k) + key * a.k.row, p.head_dim);
          const Sum dp = dout.dot(head.keys_of(a.v) + key * a.v.row, p.value_dim);
          sum += attention_weight<T, rules, slots>(a, head, query, key, product, dp).ds;
        }
      }
    }
  if (threadIdx.x % 32 == 0) a.diagonals[at] = sum;
}

}  // namespace bs::cuda::device
