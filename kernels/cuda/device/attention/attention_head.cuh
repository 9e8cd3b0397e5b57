#pragma once
// One head of one sequence: where its rows lie, what a query sees, how scores are made of products.
// `rules` are those that a kernel knows of; problems have no others.
#include <bs/lib/philox.h>
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

template <class T, class Sum, unsigned rules>
struct AttentionHead {
  static constexpr bool plain = (rules & ~rule_ragged) == 0;
  static constexpr double log2_e = 1.4426950408889634;

  const AttentionProblem& p;
  const AttentionScores<T, Sum>& s;
  int b, h;                ///< entry of the batch, and head of q
  int sequence;            ///< b, or that of a ragged batch
  int begin, end, keys;    ///< places of queries, and keys, of this sequence
  int query_row, key_row;  ///< rows of the tensors that hold place `begin`, and key 0

  __device__ AttentionHead(const AttentionProblem& problem, const AttentionScores<T, Sum>& scores,
                           int of_sequence, int head)
      : p(problem), s(scores), b(of_sequence), h(head), sequence(of_sequence) {
    begin = p.first_query;
    end = begin + p.queries;
    keys = p.keys;
    query_row = key_row = 0;
    if constexpr (rules & rule_ragged) {
      b = 0;
      query_row = s.query_starts[sequence];
      key_row = s.key_starts[sequence];
      end = begin + s.query_starts[sequence + 1] - query_row;
      keys = s.key_starts[sequence + 1] - key_row;
    }
  }

  __device__ int layout_head() const {
    return p.layout_heads == 1 ? 0 : p.layout_heads == p.heads ? h : sequence * p.heads + h;
  }
  /// A tensor's rows by places of queries, and by keys.
  template <class X>
  __device__ X* queries_of(const AttentionRows<X>& x) const {
    return x.at(b, h) + (query_row - begin) * x.row;
  }
  template <class X>
  __device__ X* keys_of(const AttentionRows<X>& x) const {
    return x.at(b, h / p.group) + key_row * x.row;
  }
  /// Row of lse, whose place 0 would be that of `begin` less `begin`.
  __device__ long long row(int query) const {
    return (static_cast<long long>(b) * p.heads + h) * p.queries + query_row + query - begin;
  }
  __device__ const unsigned char* seen() const {
    return p.seen ? p.seen + static_cast<long long>(b) * p.keys : nullptr;
  }

  /// Whether a query sees a key of the sequence, as far as it is not the layout's to say.
  __device__ bool sees(int query, int key) const {
    bool yes = key - query <= p.last;
    if constexpr (rules & rule_window) yes = yes && key - query >= p.first;
    if constexpr (rules & rule_mask)
      yes = yes && s.mask.at(b, h)[(query - begin) * s.mask.row + key] != 0;
    if constexpr (rules & rule_bits) yes = yes && has_bit(query, key);
    return yes;
  }
  __device__ bool has_bit(int query, int key) const {
    const int of = s.mask_heads == 1 ? 0 : s.mask_heads == p.heads ? h : sequence * p.heads + h;
    const long long line = static_cast<long long>(of) * s.mask_rows + query / p.block;
    const int number = s.mask_numbers[line * s.mask_cols + key / p.block];
    if (number < 0) return number != -1;
    const int row = query % p.block, col = key % p.block;
    const long long byte = (static_cast<long long>(number) * p.block + row) * (p.block / 8);
    return s.mask_bits[byte + col / 8] >> (col % 8) & 1;
  }
  /// Puts a scaled product's score, in powers of two, in its place; gives the derivative.
  __device__ Sum shape(Sum& score, int query, int key) const {
    Sum slope = 1;
    if constexpr (rules & rule_softcap) {
      const Sum cap = static_cast<Sum>(s.softcap);
      const Sum t = tanh(score / cap);
      slope = 1 - t * t;
      score = cap * t;
    }
    if constexpr (rules & rule_bias) {
      const Sum bias = widen(s.bias.at(b, h)[(query - begin) * s.bias.row + key]);
      score = bias == minus_infinity<Sum>() ? bias : score + bias;
    }
    const int distance = key - query - s.origin;
    if constexpr (rules & rule_table)
      score += s.table[h * s.table_head + min(max(distance, -s.reach), s.reach) + s.reach];
    if constexpr (rules & rule_slopes) score -= s.slopes[h] * static_cast<Sum>(abs(distance));
    score *= static_cast<Sum>(log2_e);
    return slope;
  }
  /// The random words of keys 4 n to 4 n + 3, and what dropout makes of one.
  __device__ PhiloxBlock words(int query, int key) const {
    const auto block = static_cast<unsigned long long>(row(query)) << 28 | key >> 2;
    return philox(s.seed, block,
                  s.random_shift ? s.random_offset + *s.random_shift : s.random_offset);
  }
  __device__ Sum factor(const PhiloxBlock& words, int key) const {
    const unsigned low = key & 1 ? words.word[1] : words.word[0];
    const unsigned high = key & 1 ? words.word[3] : words.word[2];
    return (key & 2 ? high : low) < s.limit ? Sum(0) : static_cast<Sum>(s.kept);
  }
  __device__ Sum factor(int query, int key) const {
    if constexpr ((rules & rule_dropout) == 0) return 1;
    return factor(words(query, key), key);
  }
};

/// One warp's walk over what a single query, or a single key, meets.
template <class Head>
struct AttentionWalk {
  const Head& head;

  /// Calls visit(key) for the keys that a query sees.
  template <class Visit>
  __device__ void keys(const BlockLines& rows, int query, const Visit& visit) const {
    const long long line =
        static_cast<long long>(head.layout_head()) * rows.lines + query / head.p.block;
    const unsigned char* const seen = head.seen();
    for (int e = rows.offsets[line]; e < rows.offsets[line + 1]; ++e) {
      const int from = rows.at[e] * head.p.block;
      for (int key = from; key < min(from + head.p.block, head.keys); ++key)
        if ((!seen || seen[key] != 0) && head.sees(query, key)) visit(key);
    }
  }
  /// Calls visit(query) for the queries that see a key.
  template <class Visit>
  __device__ void queries(const BlockLines& columns, int key, const Visit& visit) const {
    const long long line =
        static_cast<long long>(head.layout_head()) * columns.lines + key / head.p.block;
    const unsigned char* const seen = head.seen();
    if (seen && seen[key] == 0) return;
    for (int e = columns.offsets[line]; e < columns.offsets[line + 1]; ++e) {
      const int from = columns.at[e] * head.p.block;
      for (int query = max(from, head.begin); query < min(from + head.p.block, head.end); ++query)
        if (head.sees(query, key)) visit(query);
    }
  }
};

}  // namespace bs::cuda::device
