#pragma once
/** @file Single rows of attention in plain loops, and the numbers that backward has of each row. */
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/sparse_attention_scores.h>

namespace bs::cpu::attention {

template <class W>
bool all_finite(const W* x, int64_t n) {
  W sum = 0;  // of zeros, unless one is not finite
  for (int64_t i = 0; i < n; ++i) sum += x[i] * W(0);
  return sum == 0;
}

template <class W, class A, class B>
W dot(const A* a, const B* b, int64_t n) {
  W sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<W>(a[i]) * static_cast<W>(b[i]);
  return sum;
}

/// Single rows, key by key. A product over a whole square takes in hidden keys with a weight of
/// zero, which goes wrong where they are not finite; rows whose sums are not are made anew here.
template <class W, class T>
struct SingleRows {
  const Scores<W>& p;
  const Rows<const T>&q, &k, &v;

  template <class Visit>
  void visit_keys(int64_t b, int64_t h, int64_t query, Visit&& visit) const {
    const LayoutView& l = p.layout;
    const int64_t at = p.layout_head(b, h) * l.rows + query / l.block;
    for (int64_t e = l.row_offsets[at]; e < l.row_offsets[at + 1]; ++e) {
      const int64_t begin = int64_t{l.col_of[e]} * l.block;
      for (int64_t key = begin; key < std::min(begin + l.block, p.keys); ++key)
        if (p.sees(b, h, query, key)) visit(key);
    }
  }
  template <class Visit>
  void visit_queries(int64_t b, int64_t h, int64_t key, Visit&& visit) const {
    const LayoutView& l = p.layout;
    const int64_t at = p.layout_head(b, h) * l.cols + key / l.block;
    for (int64_t e = l.col_offsets[at]; e < l.col_offsets[at + 1]; ++e) {
      const int64_t begin = int64_t{l.transposed_row[e]} * l.block;
      for (int64_t query = std::max(begin, p.first_query);
           query < std::min(begin + l.block, p.end_query); ++query)
        if (p.sees(b, h, query, key)) visit(query);
    }
  }
  W score(int64_t b, int64_t h, int64_t query, int64_t key, W& slope) const {
    const W product = p.scale * dot<W>(q.at(b, h, query), k.at(b, h / p.group, key), p.head_dim);
    return p.score(b, h, query, key, product, slope);
  }

  /// sums <- out of one query, whose log of the denominator is `lse`.
  void out(int64_t b, int64_t h, int64_t query, W lse, W* sums) const {
    std::fill_n(sums, p.value_dim, W(0));
    visit_keys(b, h, query, [&](int64_t key) {
      W slope;
      const W weight = math::exp(score(b, h, query, key, slope) - lse);
      add(sums, weight * p.drop_factor(b, h, query, key), v.at(b, h / p.group, key), p.value_dim);
    });
  }
  /// Weight and gradient of one score; `lse` and `mean` are its query's.
  struct Weighed {
    W weight, ds;  ///< dropped, and scaled
  };
  Weighed weigh(int64_t b, int64_t h, int64_t query, int64_t key, const T* dout, W lse,
                W mean) const {
    W slope;
    const W weight = math::exp(score(b, h, query, key, slope) - lse);
    const W factor = p.drop_factor(b, h, query, key);
    const W dp = factor * dot<W>(dout, v.at(b, h / p.group, key), p.value_dim);
    return {weight * factor, weight * (dp - mean) * slope * p.scale};
  }
  template <class X>
  static void add(W* sums, W factor, const X* x, int64_t n) {
    for (int64_t d = 0; d < n; ++d) sums[d] += factor * static_cast<W>(x[d]);
  }
};

/// Rows of `lse` and of dout . out, of whole squares of queries.
template <class W>
struct RowNumbers {
  const W *lse, *delta;  ///< +infinity and 0 where no key was seen
  int64_t length;        ///< of a head
  int64_t from;          ///< the query that comes first
  int64_t at(int64_t head, int64_t query) const { return head * length + query - from; }
};

/// lse with +infinity for rows that saw no key, so that their weights come out as zeros, and for
/// what fills up the first and the last square.
template <class W>
Tensor usable(const Tensor& lse, const Problem<W>& p, int64_t length) {
  Tensor y = full({p.batch, p.heads, length}, std::numeric_limits<double>::infinity(), dtype_of<W>);
  const W* from = lse.data<W>();
  W* to = y.data<W>() + p.first_query - p.query_from();
  for (int64_t head = 0; head < p.batch * p.heads; ++head)
    for (int64_t i = 0; i < p.end_query - p.first_query; ++i) {
      const W value = from[head * p.sequence.rows + p.sequence.first_row + i];
      if (value != -std::numeric_limits<W>::infinity()) to[head * length + i] = value;
    }
  return y;
}

/// dout . out for every row.
template <class W, class T>
Tensor row_products(const Tensor& out, const Tensor& dout, const Problem<W>& p, int64_t length) {
  Tensor y = zeros({p.batch, p.heads, length}, dtype_of<W>);
  const Rows<const T> a(out), b(dout);
  const int64_t rows = out.size(2), n = out.size(3);
  W* to = y.data<W>() + p.first_query - p.query_from();
  parallel_for(p.batch * p.heads * rows, std::max<int64_t>(1, elementwise_grain / n),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t head = i / rows, b_ = head / p.heads, h = head % p.heads;
                   to[head * length + i % rows] =
                       dot<W>(a.at(b_, h, i % rows), b.at(b_, h, i % rows), n);
                 }
               });
  return y;
}

}  // namespace bs::cpu::attention
