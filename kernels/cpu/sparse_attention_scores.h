#pragma once
/** @file Scores beyond scaled products, and dropout of weights. */
#include <bs/kernels/cpu/sparse_attention.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/distribution.h>
#include <bs/lib/philox.h>

#include <algorithm>
#include <cmath>

namespace bs::cpu::attention {

/// A range of rows.
struct Piece {
  int64_t begin, end;
  Tensor of(const Tensor& x) const { return x.slice(2, begin, end); }
};

/// Calls `body(sequence, its queries, its keys)` for each of a ragged batch, or once for all.
template <class Body>
void for_each_sequence(const Tensor& q, const Tensor& k, const SparseAttentionOptions& options,
                       Body&& body) {
  const std::vector<int64_t>&queries = options.query_starts, &keys = options.key_starts;
  if (queries.empty()) body(Sequence{0, 0, q.size(2)}, Piece{0, q.size(2)}, Piece{0, k.size(2)});
  for (size_t i = 1; i < queries.size(); ++i)
    body(Sequence{static_cast<int64_t>(i - 1), queries[i - 1], q.size(2)},
         Piece{queries[i - 1], queries[i]}, Piece{keys[i - 1], keys[i]});
}

/// The bias in the type of sums; axes that entries share stay shared.
template <class W>
Tensor wide_bias(const Tensor& bias) {
  if (!bias.defined() || bias.dtype() == dtype_of<W>) return bias;
  Tensor own = bias;
  for (int axis = 0; axis < 2; ++axis)
    if (bias.strides()[axis] == 0 && bias.size(axis) > 1) own = own.slice(axis, 0, 1);
  return cast(own, dtype_of<W>).expand(bias.shape());
}

/// A problem whose scores may be more than scaled products.
template <class W>
struct Scores : Problem<W> {
  using P = Problem<W>;
  W softcap;
  const W *table = nullptr, *slopes = nullptr, *sinks = nullptr;
  int64_t table_head = 0, reach = 0;
  int64_t origin;  ///< of distances: d = key - query - origin
  uint32_t limit;
  W kept;  ///< factor of weights that dropout leaves
  RandomState random;
  bool adds, drops;

  Scores(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& l,
         const SparseAttentionOptions& o, const Tensor& wide_bias, const Sequence& of)
      : P(q, k, v, l, o, of),
        softcap(static_cast<W>(o.softcap)),
        origin(o.offset),
        limit(static_cast<uint32_t>(threshold(o.dropout))),
        kept(static_cast<W>(1 / (1 - o.dropout))),
        random(o.random),
        adds(o.bias.defined() || o.relative_bias.defined() || o.alibi_slopes.defined()),
        drops(o.dropout > 0) {
    if (wide_bias.defined()) P::bias = Rows<const W>(wide_bias, P::first_query);
    if (o.relative_bias.defined()) {
      table = o.relative_bias.data<W>();
      reach = o.relative_bias.size(1) / 2;
      table_head = o.relative_bias.size(0) == 1 ? 0 : o.relative_bias.size(1);
    }
    if (o.alibi_slopes.defined()) slopes = o.alibi_slopes.data<W>();
    if (o.sinks.defined()) sinks = o.sinks.data<W>();
  }

  /// What is added to a score.
  W added(int64_t b, int64_t h, int64_t query, int64_t key) const {
    const int64_t distance = key - query - origin;
    W sum = 0;
    if (P::bias.data) sum += P::bias.at(b, h, query)[key];
    if (table) sum += table[h * table_head + std::clamp(distance, -reach, reach) + reach];
    if (slopes) sum -= slopes[h] * static_cast<W>(distance < 0 ? -distance : distance);
    return sum;
  }
  /// The score of a scaled product; `slope` is its derivative by the product.
  W score(int64_t b, int64_t h, int64_t query, int64_t key, W product, W& slope) const {
    slope = 1;
    if (softcap > 0) {
      const W t = math::tanh(product / softcap);
      slope = 1 - t * t;
      product = softcap * t;
    }
    return adds ? product + added(b, h, query, key) : product;
  }
  /// Turns one square of scaled products into scores. `slopes_to`, where given, takes derivatives.
  template <int Side, bool queries_down>
  void shape(int64_t b, int64_t h, int64_t key, int64_t query, W* s, W* slopes_to) const {
    if (softcap > 0)
      for (int e = 0; e < Side * Side; ++e) {
        const W t = math::tanh(s[e] / softcap);
        s[e] = softcap * t;
        if (slopes_to) slopes_to[e] = 1 - t * t;
      }
    if (adds)
      for (int r = 0; r < Side; ++r)
        for (int c = 0; c < Side; ++c) {
          const int64_t i = query + (queries_down ? r : c);
          const int64_t j = key + (queries_down ? c : r);
          if (P::has(i) && j < P::keys) s[r * Side + c] += added(b, h, i, j);
        }
    P::template hide<Side, queries_down>(b, h, key, query, s);
  }

  W factor_of(const PhiloxBlock& words, int64_t key) const {
    return words.word[key % 4] < limit ? W(0) : kept;
  }
  PhiloxBlock words_of(int64_t b, int64_t h, int64_t query, int64_t key) const {
    const auto row = static_cast<uint64_t>(P::row_of(b, h, query));
    return philox(random.seed, detail::attention_dropout_block(row, static_cast<uint64_t>(key)),
                  random.offset);
  }
  W drop_factor(int64_t b, int64_t h, int64_t query, int64_t key) const {
    return drops ? factor_of(words_of(b, h, query, key), key) : W(1);
  }
  /// The factors that dropout has for one square.
  template <int Side, bool queries_down>
  void drop(int64_t b, int64_t h, int64_t key, int64_t query, W* factors) const {
    static_assert(Side % 4 == 0);
    for (int i = 0; i < Side; ++i)
      for (int j = 0; j < Side; j += 4) {
        const PhiloxBlock words = words_of(b, h, query + i, key + j);
        for (int l = 0; l < 4; ++l)
          factors[queries_down ? i * Side + j + l : (j + l) * Side + i] = factor_of(words, j + l);
      }
  }
};

}  // namespace bs::cpu::attention
