#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/sparse_attention.h>
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu {

using namespace attention;

namespace {

/// Squares worked on at once; their scores and gradients fill most of a level-1 cache.
constexpr Index chunk = 4;

/// What a thread reuses from strip to strip.
template <class W>
struct Workspace {
  std::vector<Index> found;
  std::vector<PanelPair<W>> pairs, more_pairs;
};

template <class W, class T>
struct Backward {
  Problem<W> p;
  Index width;  ///< columns of the operands, padding included
  Rows<const W> q, k, v, dout;
  const W* lse;    ///< [batch, heads, queries]; +infinity where no key was seen
  const W* delta;  ///< [batch, heads, queries], dout . out
  Rows<T> dq, dk, dv;

  Index row_of(Index b, Index h, Index query) const {
    return (b * p.heads + h) * p.queries + query;
  }

  /// scores <- p, and dp <- ds, of one square with the queries down and the keys across.
  template <int Side>
  void weigh_by_row(Index row, W* scores, W* dp) const {
    for (Index r = 0; r < Side; ++r) {
      const W l = lse[row + r];
      const W d = delta[row + r];
      for (int c = 0; c < Side; ++c) {
        const W weight = math::exp(scores[r * Side + c] - l);
        scores[r * Side + c] = weight;
        dp[r * Side + c] = weight * (dp[r * Side + c] - d) * p.scale;
      }
    }
  }

  /// dp <- ds of one square with the keys down and the queries across.
  template <int Side>
  void weigh_by_lane(Index row, const W* scores, W* dp) const {
    for (Index r = 0; r < Side; ++r)
      for (int c = 0; c < Side; ++c) {
        const W weight = math::exp(scores[r * Side + c] - lse[row + c]);
        dp[r * Side + c] = weight * (dp[r * Side + c] - delta[row + c]) * p.scale;
      }
  }

  template <int Side>
  static void store(const W* sums, Index width, Index head_dim, const Rows<T>& to, Index b, Index h,
                    Index first) {
    for (int r = 0; r < Side; ++r) {
      T* row = to.at(b, h, first + r);
      for (Index d = 0; d < head_dim; ++d) row[d] = T(sums[r * width + d]);
    }
  }

  /// dk and dv of keys [key, key + Side); where `dq_sums` is given, [group, queries, width], also
  /// what these keys add to dq.
  template <int Side>
  void key_strip(Index b, Index kv, Index key, W* dq_sums, Workspace<W>& work) const {
    constexpr Index square = Side * Side;
    const Index packed = packed_b_size<W>(p.head_dim, Side);
    W* keys = scratch<W>(4, 2 * packed);
    W* values = keys + packed;
    W* dk_sums = scratch<W>(5, 2 * Side * width);
    W* dv_sums = dk_sums + Side * width;
    W* scores = scratch<W>(6, 2 * chunk * square);
    W* dscores = scores + chunk * square;
    pack_b<W>(p.head_dim, Side, k.at(b, kv, key), Index{1}, k.row, keys);
    pack_b<W>(p.head_dim, Side, v.at(b, kv, key), Index{1}, v.row, values);
    std::fill_n(dk_sums, 2 * Side * width, W(0));
    for (Index member = 0; member < p.group; ++member) {
      const Index h = kv * p.group + member;
      p.list_queries(h, key, work.found);
      const auto count = static_cast<Index>(work.found.size());
      for (Index from = 0; from < count; from += chunk) {
        work.pairs.clear();
        work.more_pairs.clear();
        for (Index i = 0; i < std::min(chunk, count - from); ++i) {
          const Index query = work.found[static_cast<size_t>(from + i)];
          W* s = scores + i * square;
          W* ds = dscores + i * square;
          multiply<Side>(q.at(b, h, query), q.row, keys, p.scale, s);
          multiply<Side>(dout.at(b, h, query), dout.row, values, W(1), ds);
          p.template hide<Side, true>(b, key, query, s);
          weigh_by_row<Side>(row_of(b, h, query), s, ds);
          work.pairs.push_back({s, dout.at(b, h, query)});
          work.more_pairs.push_back({ds, q.at(b, h, query)});
          if (dq_sums) {
            const PanelPair<W> pair{ds, k.at(b, kv, key)};
            multiply_panels<W, W>(Side, width, Side, {&pair, 1}, direct_a<W>(Side, 1),
                                  direct_b<W>(k.row), W(1), W(1),
                                  dq_sums + (member * p.queries + query) * width, width, 1);
          }
        }
        multiply_panels<W, W>(Side, width, Side, work.pairs, direct_a<W>(1, Side),
                              direct_b<W>(dout.row), W(1), W(1), dv_sums, width, 1);
        multiply_panels<W, W>(Side, width, Side, work.more_pairs, direct_a<W>(1, Side),
                              direct_b<W>(q.row), W(1), W(1), dk_sums, width, 1);
      }
    }
    store<Side>(dk_sums, width, p.head_dim, dk, b, kv, key);
    store<Side>(dv_sums, width, p.head_dim, dv, b, kv, key);
  }

  /// Rows of `left` times a packed right operand, over head_dim.
  template <int Side>
  void multiply(const W* left, Index row, const W* packed, W factor, W* square) const {
    const PanelPair<W> pair{left, packed};
    multiply_panels<W, W>(Side, Side, p.head_dim, {&pair, 1}, direct_a<W>(row, 1),
                          packed_b<W>(p.head_dim), factor, W(0), square, Side, 1);
  }

  /// dq of queries [query, query + Side), by the same sums in the same order as key_strip().
  template <int Side>
  void query_strip(Index b, Index h, Index query, Workspace<W>& work) const {
    const Index kv = h / p.group;
    const Index packed = packed_b_size<W>(p.head_dim, Side);
    W* queries = scratch<W>(4, 2 * packed);
    W* douts = queries + packed;
    W* sums = scratch<W>(5, Side * width);
    W* s = scratch<W>(6, 2 * Side * Side);
    W* ds = s + Side * Side;
    pack_b<W>(p.head_dim, Side, q.at(b, h, query), Index{1}, q.row, queries);
    pack_b<W>(p.head_dim, Side, dout.at(b, h, query), Index{1}, dout.row, douts);
    std::fill_n(sums, Side * width, W(0));
    p.list_keys(h, query, work.found);
    for (const Index key : work.found) {
      multiply<Side>(k.at(b, kv, key), k.row, queries, p.scale, s);
      multiply<Side>(v.at(b, kv, key), v.row, douts, W(1), ds);
      p.template hide<Side, false>(b, key, query, s);
      weigh_by_lane<Side>(row_of(b, h, query), s, ds);
      const PanelPair<W> pair{ds, k.at(b, kv, key)};
      multiply_panels<W, W>(Side, width, Side, {&pair, 1}, direct_a<W>(1, Side), direct_b<W>(k.row),
                            W(1), W(1), sums, width, 1);
    }
    store<Side>(sums, width, p.head_dim, dq, b, h, query);
  }

  /// All gradients of the heads that share one head of k and v: scores are made once.
  template <int Side>
  void whole_head(Index b, Index kv, Workspace<W>& work) const {
    const Index size = p.queries * width;
    W* dq_sums = scratch<W>(7, p.group * size);
    std::fill_n(dq_sums, p.group * size, W(0));
    for (Index key = 0; key < p.keys; key += Side) key_strip<Side>(b, kv, key, dq_sums, work);
    for (Index member = 0; member < p.group; ++member)
      for (Index query = 0; query < p.queries; query += Side)
        store<Side>(dq_sums + member * size + query * width, width, p.head_dim, dq, b,
                    kv * p.group + member, query);
  }

  void run() const {
    const Index kv_heads = p.heads / p.group;
    const Index items = p.batch * kv_heads;
    const Index threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    with_side<W>(p.side, [&](auto side) {
      if (whole_heads_are_faster(items, threads)) {
        for_each(items, 1, [&](Index i, Workspace<W>& work) {
          whole_head<side>(i / kv_heads, i % kv_heads, work);
        });
        return;
      }
      const Index key_strips = p.keys / side;
      for_each(items * key_strips, 2, [&](Index i, Workspace<W>& work) {
        const Index head = i / key_strips;
        key_strip<side>(head / kv_heads, head % kv_heads, i % key_strips * side, nullptr, work);
      });
      const Index query_strips = p.queries / side;
      for_each(p.batch * p.heads * query_strips, 2, [&](Index i, Workspace<W>& work) {
        const Index head = i / query_strips;
        query_strip<side>(head / p.heads, head % p.heads, i % query_strips * side, work);
      });
    });
  }

  /// Two passes, over keys and over queries, make the scores and their gradients twice: 7 products
  /// in the place of 5. They split finely; whole heads do so only when there are many.
  static bool whole_heads_are_faster(Index items, Index threads) {
    return 5 * ceil_div(items, threads) * threads <= 7 * items;
  }

  template <class Body>
  static void for_each(Index n, Index grain, Body&& body) {
#pragma omp parallel if (n > 1 && !omp_in_parallel())
    {
      Workspace<W> work;
#pragma omp for schedule(dynamic, grain)
      for (Index i = 0; i < n; ++i) body(i, work);
    }
  }
};

/// lse with +infinity for rows that saw no key, so that their weights come out as zeros.
template <class W>
Tensor usable(const Tensor& lse) {
  Tensor y = Tensor::empty_like(lse);
  const W* from = lse.data<W>();
  W* to = y.data<W>();
  for (int64_t i = 0; i < lse.numel(); ++i)
    to[i] = from[i] == -std::numeric_limits<W>::infinity() ? -from[i] : from[i];
  return y;
}

/// dout . out for every row.
template <class W, class T>
Tensor row_products(const Tensor& out, const Tensor& dout) {
  Tensor y = Tensor::empty(out.shape().slice(0, 3), dtype_of<W>);
  const Rows<const T> a(out);
  const Rows<const T> b(dout);
  const Index heads = out.size(1), rows = out.size(2), n = out.size(3);
  W* to = y.data<W>();
  parallel_for(y.numel(), std::max<Index>(1, elementwise_grain / n), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index head = i / rows;
      const T* x = a.at(head / heads, head % heads, i % rows);
      const T* z = b.at(head / heads, head % heads, i % rows);
      W sum = 0;
      for (Index d = 0; d < n; ++d) sum += static_cast<W>(x[d]) * static_cast<W>(z[d]);
      to[i] = sum;
    }
  });
  return y;
}

}  // namespace

void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SparseAttentionResult& forward, const Tensor& dout,
                               const Layout& layout, const SparseAttentionGradients& gradients,
                               const SparseAttentionOptions& options, Stream) {
  visit_floating("sparse_attention_backward", q.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const Tensor wide_q = operand<W>(q, row_unit<W>);
    const Tensor wide_k = operand<W>(k, row_unit<W>);
    const Tensor wide_v = operand<W>(v, row_unit<W>);
    const Tensor wide_dout = operand<W>(dout, row_unit<W>);
    const Tensor lse = usable<W>(forward.lse);
    const Tensor delta = row_products<W, T>(forward.out, dout);
    Backward<W, T>{Problem<W>(q, k, layout, options),
                   wide_q.size(3),
                   Rows<const W>(wide_q),
                   Rows<const W>(wide_k),
                   Rows<const W>(wide_v),
                   Rows<const W>(wide_dout),
                   lse.data<W>(),
                   delta.data<W>(),
                   Rows<T>(gradients.dq),
                   Rows<T>(gradients.dk),
                   Rows<T>(gradients.dv)}
        .run();
  });
}

}  // namespace bs::cpu
