#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/sparse_attention_rows.h>

namespace bs::cpu {

using namespace attention;

namespace {

/// Squares worked on at once; their scores and gradients fill most of a level-1 cache.
constexpr int64_t chunk = 4;

/// What a thread reuses from strip to strip.
template <class W>
struct Workspace {
  std::vector<int64_t> found;
  std::vector<PanelPair<W>> pairs, more_pairs;
};

/// One square: scores that become weights, gradients of theirs, and what the options add to it.
template <class W>
struct Square {
  W *s, *ds, *slopes, *factors;  ///< the last two are null where options have no use for them
};

template <class W, class T>
struct Backward {
  Scores<W> p;
  Rows<const W> q, k, v, dout;
  int64_t width, value_width;  ///< columns of the operands, padding included
  RowNumbers<W> numbers;
  Rows<T> dq, dk, dv;

  int64_t row_of(int64_t b, int64_t h, int64_t query) const {
    return numbers.at(b * p.heads + h, query);
  }
  SingleRows<W, W> single() const { return {p, q, k, v}; }

  /// Room for a square, `count` of which lie side by side.
  template <int Side>
  Square<W> square_at(W* memory, int64_t i, int64_t count) const {
    constexpr int64_t area = Side * Side;
    W* const at = memory + i * area;
    return {at, at + count * area, p.softcap > 0 ? at + 2 * count * area : nullptr,
            p.drops ? at + 3 * count * area : nullptr};
  }

  /// s <- weights times `factor(element)`, and ds <- gradients of products.
  template <int Side, bool queries_down, class Factor>
  void weigh_square(int64_t row, const Square<W>& x, Factor&& factor) const {
    const W scale = p.scale;
    for (int r = 0; r < Side; ++r) {
      W* const s = x.s + r * Side;
      W* const ds = x.ds + r * Side;
      const W* const lse = numbers.lse + row + (queries_down ? r : 0);
      const W* const delta = numbers.delta + row + (queries_down ? r : 0);
#pragma omp simd
      for (int c = 0; c < Side; ++c) {
        const int i = queries_down ? 0 : c;
        const W weight = math::exp(s[c] - lse[i]), left = factor(r * Side + c);
        s[c] = weight * left;
        ds[c] = weight * (ds[c] * left - delta[i]) * scale;
      }
    }
  }
  /// With queries down or keys down. Flattened: in a file this large the compiler leaves exp a
  /// call, one number at a time.
  template <int Side, bool queries_down>
  [[gnu::flatten, gnu::noinline]] void weigh(int64_t row, const Square<W>& x) const {
    weigh_square<Side, queries_down>(row, x, [](int) { return W(1); });
  }
  /// The same with what the options add.
  template <int Side, bool queries_down>
  [[gnu::flatten, gnu::noinline]] void weigh_more(int64_t row, const Square<W>& x) const {
    weigh_square<Side, queries_down>(row, x,
                                     [&](int e) { return x.factors ? x.factors[e] : W(1); });
    if (!x.slopes) return;
    for (int e = 0; e < Side * Side; ++e) x.ds[e] *= x.slopes[e];
  }
  /// Scaled products and dout . v of a square become weights and gradients.
  template <int Side, bool queries_down>
  void finish(int64_t b, int64_t h, int64_t key, int64_t query, const Square<W>& x) const {
    p.template shape<Side, queries_down>(b, h, key, query, x.s, x.slopes);
    if (x.factors) p.template drop<Side, queries_down>(b, h, key, query, x.factors);
    const int64_t row = row_of(b, h, query);
    x.factors || x.slopes ? weigh_more<Side, queries_down>(row, x)
                          : weigh<Side, queries_down>(row, x);
  }

  /// Rows of `left` times a packed right operand, over `depth`.
  template <int Side>
  void multiply(const W* left, int64_t row, const W* packed, int64_t depth, W factor,
                W* square) const {
    const PanelPair<W> pair{left, packed};
    multiply_panels<W, W>(Side, Side, depth, {&pair, 1}, direct_a<W>(row, 1), packed_b<W>(depth),
                          factor, W(0), square, Side, 1);
  }

  /// Writes a row of sums; one that is not finite is first made anew by `again(sums)`.
  template <class Again>
  static void store(W* sums, int64_t n, T* to, Again&& again) {
    if (!all_finite(sums, n)) {
      std::fill_n(sums, n, W(0));
      again(sums);
    }
    for (int64_t d = 0; d < n; ++d) to[d] = T(sums[d]);
  }
  void store_query(int64_t b, int64_t h, int64_t query, W* sums) const {
    if (!p.has(query)) return;
    store(sums, p.head_dim, dq.at(b, h, query), [&](W* to) {
      const int64_t row = row_of(b, h, query);
      single().visit_keys(b, h, query, [&](int64_t key) {
        const auto [weight, ds] = single().weigh(b, h, query, key, dout.at(b, h, query),
                                                 numbers.lse[row], numbers.delta[row]);
        single().add(to, ds, k.at(b, h / p.group, key), p.head_dim);
      });
    });
  }
  void store_key(int64_t b, int64_t kv, int64_t key, W* dk_sums, W* dv_sums) const {
    if (key >= p.keys) return;
    const auto again = [&](auto&& add) {
      for (int64_t h = kv * p.group; h < (kv + 1) * p.group; ++h)
        single().visit_queries(b, h, key, [&](int64_t query) {
          const int64_t row = row_of(b, h, query);
          add(h, query,
              single().weigh(b, h, query, key, dout.at(b, h, query), numbers.lse[row],
                             numbers.delta[row]));
        });
    };
    store(dk_sums, p.head_dim, dk.at(b, kv, key), [&](W* to) {
      again([&](int64_t h, int64_t query, const auto& x) {
        single().add(to, x.ds, q.at(b, h, query), p.head_dim);
      });
    });
    store(dv_sums, p.value_dim, dv.at(b, kv, key), [&](W* to) {
      again([&](int64_t h, int64_t query, const auto& x) {
        single().add(to, x.weight, dout.at(b, h, query), p.value_dim);
      });
    });
  }

  /// dk and dv of keys [key, key + Side); where `dq_sums` is given, [group, queries, width], also
  /// what these keys add to dq.
  template <int Side>
  void key_strip(int64_t b, int64_t kv, int64_t key, W* dq_sums, Workspace<W>& work) const {
    W* keys =
        scratch<W>(4, packed_b_size<W>(p.head_dim, Side) + packed_b_size<W>(p.value_dim, Side));
    W* values = keys + packed_b_size<W>(p.head_dim, Side);
    W* dk_sums = scratch<W>(5, Side * (width + value_width));
    W* dv_sums = dk_sums + Side * width;
    W* squares = scratch<W>(6, 4 * chunk * Side * Side);
    pack_b<W>(p.head_dim, Side, k.at(b, kv, key), int64_t{1}, k.row, keys);
    pack_b<W>(p.value_dim, Side, v.at(b, kv, key), int64_t{1}, v.row, values);
    std::fill_n(dk_sums, Side * (width + value_width), W(0));
    for (int64_t member = 0; member < p.group; ++member) {
      const int64_t h = kv * p.group + member;
      p.list_queries(b, h, key, work.found);
      const auto count = static_cast<int64_t>(work.found.size());
      for (int64_t from = 0; from < count; from += chunk) {
        work.pairs.clear();
        work.more_pairs.clear();
        for (int64_t i = 0; i < std::min(chunk, count - from); ++i) {
          const int64_t query = work.found[static_cast<size_t>(from + i)];
          const Square<W> x = square_at<Side>(squares, i, chunk);
          multiply<Side>(q.at(b, h, query), q.row, keys, p.head_dim, p.scale, x.s);
          multiply<Side>(dout.at(b, h, query), dout.row, values, p.value_dim, W(1), x.ds);
          finish<Side, true>(b, h, key, query, x);
          work.pairs.push_back({x.s, dout.at(b, h, query)});
          work.more_pairs.push_back({x.ds, q.at(b, h, query)});
          if (dq_sums) {
            const PanelPair<W> pair{x.ds, k.at(b, kv, key)};
            W* to = dq_sums + (member * numbers.length + query - numbers.from) * width;
            multiply_panels<W, W>(Side, width, Side, {&pair, 1}, direct_a<W>(Side, 1),
                                  direct_b<W>(k.row), W(1), W(1), to, width, 1);
          }
        }
        multiply_panels<W, W>(Side, value_width, Side, work.pairs, direct_a<W>(1, Side),
                              direct_b<W>(dout.row), W(1), W(1), dv_sums, value_width, 1);
        multiply_panels<W, W>(Side, width, Side, work.more_pairs, direct_a<W>(1, Side),
                              direct_b<W>(q.row), W(1), W(1), dk_sums, width, 1);
      }
    }
    for (int64_t r = 0; r < Side; ++r)
      store_key(b, kv, key + r, dk_sums + r * width, dv_sums + r * value_width);
  }

  /// Queries [query, query + Side) against each square of keys: `use(key, its square)`, keys down.
  template <int Side, class Use>
  void visit_squares(int64_t b, int64_t h, int64_t query, Workspace<W>& work, Use&& use) const {
    const int64_t kv = h / p.group;
    W* queries =
        scratch<W>(4, packed_b_size<W>(p.head_dim, Side) + packed_b_size<W>(p.value_dim, Side));
    W* douts = queries + packed_b_size<W>(p.head_dim, Side);
    const Square<W> x = square_at<Side>(scratch<W>(6, 4 * Side * Side), 0, 1);
    pack_b<W>(p.head_dim, Side, q.at(b, h, query), int64_t{1}, q.row, queries);
    pack_b<W>(p.value_dim, Side, dout.at(b, h, query), int64_t{1}, dout.row, douts);
    p.list_keys(b, h, query, work.found);
    for (const int64_t key : work.found) {
      multiply<Side>(k.at(b, kv, key), k.row, queries, p.head_dim, p.scale, x.s);
      multiply<Side>(v.at(b, kv, key), v.row, douts, p.value_dim, W(1), x.ds);
      use(key, x);
    }
  }

  /// dq of queries [query, query + Side), by the same sums in the same order as key_strip().
  template <int Side>
  void query_strip(int64_t b, int64_t h, int64_t query, Workspace<W>& work) const {
    W* sums = scratch<W>(5, Side * width);
    std::fill_n(sums, Side * width, W(0));
    visit_squares<Side>(b, h, query, work, [&](int64_t key, const Square<W>& x) {
      finish<Side, false>(b, h, key, query, x);
      const PanelPair<W> pair{x.ds, k.at(b, h / p.group, key)};
      multiply_panels<W, W>(Side, width, Side, {&pair, 1}, direct_a<W>(1, Side), direct_b<W>(k.row),
                            W(1), W(1), sums, width, 1);
    });
    for (int64_t r = 0; r < Side; ++r) store_query(b, h, query + r, sums + r * width);
  }

  /// All gradients of the heads that share one head of k and v: scores are made once.
  template <int Side>
  void whole_head(int64_t b, int64_t kv, Workspace<W>& work) const {
    const int64_t size = numbers.length * width;
    W* dq_sums = scratch<W>(7, p.group * size);
    std::fill_n(dq_sums, p.group * size, W(0));
    for (int64_t key = 0; key < p.keys; key += Side) key_strip<Side>(b, kv, key, dq_sums, work);
    for (int64_t member = 0; member < p.group; ++member)
      for (int64_t query = p.first_query; query < p.end_query; ++query)
        store_query(b, kv * p.group + member, query,
                    dq_sums + member * size + (query - numbers.from) * width);
  }

  void run() const {
    const int64_t kv_heads = p.heads / p.group;
    const int64_t items = p.batch * kv_heads;
    const int64_t threads = whole_team();
    with_side<W>(p.side, [&](auto side) {
      if (whole_heads_are_faster(items, threads)) {
        for_each(items, [&](int64_t i, Workspace<W>& work) {
          whole_head<side>(i / kv_heads, i % kv_heads, work);
        });
        return;
      }
      const int64_t key_strips = p.key_strips();
      for_each(items * key_strips, [&](int64_t i, Workspace<W>& work) {
        const int64_t head = i / key_strips;
        key_strip<side>(head / kv_heads, head % kv_heads, i % key_strips * side, nullptr, work);
      });
      const int64_t query_strips = p.query_strips();
      for_each(p.batch * p.heads * query_strips, [&](int64_t i, Workspace<W>& work) {
        const int64_t head = i / query_strips;
        query_strip<side>(head / p.heads, head % p.heads, p.query_from() + i % query_strips * side,
                          work);
      });
    });
  }

  /// Two passes, over keys and over queries, make the scores and their gradients twice: 7 products
  /// in the place of 5. They split finely; whole heads do so only when there are many.
  static bool whole_heads_are_faster(int64_t items, int64_t threads) {
    return 5 * ceil_div(items, threads) * threads <= 7 * items;
  }

  /// Calls body(i, workspace of the thread) for each i in [0, n).
  template <class Body>
  static void for_each(int64_t n, Body&& body) {
    parallel_each_with(
        n, n > 1 ? whole_team() : 1, [] { return Workspace<W>(); }, body);
  }

  /// Gradients of scores, summed over the `batches` and `heads` that share them: `use(entry, head,
  /// query strip, query, key, ds)` with the numbers of the shared ones.
  template <class Use>
  void sum_scores(int64_t batches, int64_t heads, Use&& use) const {
    const int64_t strips = p.query_strips();
    with_side<W>(p.side, [&](auto side) {
      for_each(batches * heads * strips, [&](int64_t item, Workspace<W>& work) {
        const int64_t strip = item % strips, of_batch = item / strips / heads;
        const int64_t of_head = item / strips % heads, query = p.query_from() + strip * side;
        for (int64_t b = of_batch; b < p.batch; b += batches)
          for (int64_t h = of_head; h < p.heads; h += heads)
            visit_squares<side>(b, h, query, work, [&](int64_t key, const Square<W>& x) {
              p.template shape<side, false>(b, h, key, query, x.s, nullptr);
              if (x.factors) p.template drop<side, false>(b, h, key, query, x.factors);
              const int64_t row = row_of(b, h, query);
              for (int64_t r = 0; r < side; ++r)
                for (int64_t c = 0; c < side; ++c) {
                  const int64_t e = r * side + c;
                  if (x.s[e] == -std::numeric_limits<W>::infinity()) continue;
                  const W dp = x.factors ? x.factors[e] * x.ds[e] : x.ds[e];
                  const W weight = math::exp(x.s[e] - numbers.lse[row + c]);
                  use(of_batch, of_head, strip, query + c, key + r,
                      weight * (dp - numbers.delta[row + c]));
                }
            });
      });
    });
  }
};

/// Adds to the gradients of a bias and of a table's diagonals.
template <class W, class T>
void add_score_gradients(const Backward<W, T>& work, const Layout& layout,
                         const SparseAttentionGradients& gradients) {
  const Scores<W>& p = work.p;
  if (gradients.dbias.defined()) {
    const Rows<W> to(gradients.dbias, p.first_query);
    work.sum_scores(gradients.dbias.size(0), gradients.dbias.size(1),
                    [&](int64_t b, int64_t h, int64_t, int64_t query, int64_t key, W ds) {
                      to.at(b, h, query)[key] += ds;
                    });
  }
  if (!gradients.drelative_bias.defined()) return;
  const int64_t heads = gradients.drelative_bias.size(0), strips = p.query_strips();
  const int64_t length = p.keys + p.side - 1;  // diagonals that a strip of queries meets
  Tensor parts = zeros({heads, strips, length}, dtype_of<W>);
  W* const sums = parts.data<W>();
  work.sum_scores(1, heads,
                  [&](int64_t, int64_t h, int64_t strip, int64_t query, int64_t key, W ds) {
                    const int64_t down = query - p.query_from() - strip * p.side;
                    sums[(h * strips + strip) * length + key - down + p.side - 1] += ds;
                  });
  W* const to = gradients.drelative_bias.data<W>();
  const int64_t diagonals = gradients.drelative_bias.size(1);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t strip = 0; strip < strips; ++strip) {
      // The strip's last query meets key 0 at its diagonal 0.
      const int64_t last = p.query_from() + (strip + 1) * p.side - 1 - p.first_query;
      for (int64_t z = 0; z < length; ++z) {
        const int64_t at = z - last + layout.height() - 1;
        if (at >= 0 && at < diagonals)
          to[h * diagonals + at] += sums[(h * strips + strip) * length + z];
      }
    }
}

/// What the backward of one sequence, or of a batch of equal ones, reads and writes.
struct Parts {
  Tensor q, k, v, out, lse, dout;
  SparseAttentionGradients gradients;
};

template <class T>
void attend_backward(const Parts& parts, const Layout& layout,
                     const SparseAttentionOptions& options, const Sequence& sequence) {
  using W = Wide<T>;
  const Tensor bias = wide_bias<W>(options.bias);
  const Scores<W> p(parts.q, parts.k, parts.v, layout, options, bias, sequence);
  const int64_t from = p.query_from(), before = p.first_query - from, unit = row_unit<W>;
  const Tensor queries = operand<W>(parts.q, unit, before, p.side);
  const Tensor keys = operand<W>(parts.k, unit, 0, p.side);
  const Tensor values = operand<W>(parts.v, unit, 0, p.side);
  const Tensor douts = operand<W>(parts.dout, unit, before, p.side);
  const int64_t length = p.query_strips() * p.side;
  const Tensor log_sums = usable<W>(parts.lse, p, length);
  const Tensor delta = row_products<W, T>(parts.out, parts.dout, p, length);
  const Backward<W, T> work{p,
                            Rows<const W>(queries, from),
                            Rows<const W>(keys),
                            Rows<const W>(values),
                            Rows<const W>(douts, from),
                            queries.size(3),
                            values.size(3),
                            {log_sums.data<W>(), delta.data<W>(), length, from},
                            Rows<T>(parts.gradients.dq, p.first_query),
                            Rows<T>(parts.gradients.dk),
                            Rows<T>(parts.gradients.dv)};
  work.run();
  add_score_gradients(work, layout, parts.gradients);
}

}  // namespace

void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SparseAttentionResult& forward, const Tensor& dout,
                               const Layout& layout, const SparseAttentionGradients& gradients,
                               const SparseAttentionOptions& options, Stream) {
  visit_floating("sparse_attention_backward", q.dtype(), [&]<class T>(Type<T>) {
    for_each_sequence(
        q, k, options, [&](const Sequence& sequence, const Piece& queries, const Piece& keys) {
          Parts parts{queries.of(q), keys.of(k),       keys.of(v), queries.of(forward.out),
                      forward.lse,   queries.of(dout), gradients};
          parts.gradients.dq = queries.of(gradients.dq);
          parts.gradients.dk = keys.of(gradients.dk);
          parts.gradients.dv = keys.of(gradients.dv);
          attend_backward<T>(parts, layout, options, sequence);
        });
  });
}

}  // namespace bs::cpu
