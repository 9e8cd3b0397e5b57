#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/sparse_attention_rows.h>
#include <bs/kernels/paged_attention.h>

#include <array>
#include <span>

namespace bs::cpu {

using namespace attention;

namespace {

/// Scores held at once: half of a level-1 cache.
template <class W>
constexpr int64_t most_scores = 24576 / static_cast<int64_t>(sizeof(W));

/// The running softmax of `Side` queries, one in each lane.
template <class W, int Side>
struct OnlineSoftmax {
  alignas(64) std::array<W, Side> top, shift, sum, factor;

  OnlineSoftmax() {
    top.fill(-std::numeric_limits<W>::infinity());
    sum.fill(W(0));
  }

  /// Turns `rows` rows of scores into exp(score - top), and brings sums so far to the new top.
  /// Flattened: in a file this large the compiler leaves exp a call, one number at a time.
  [[gnu::flatten, gnu::noinline]] void fold(W* scores, int64_t rows) {
    const auto larger = [](W a, W b) { return a > b ? a : b; };
    std::array<W, Side> peak = top;
    for (int64_t r = 0; r < rows; r += 4) {
      const W* s = scores + r * Side;
      for (size_t c = 0; c < Side; ++c)
        peak[c] = larger(
            peak[c], larger(larger(s[c], s[c + Side]), larger(s[c + 2 * Side], s[c + 3 * Side])));
    }
    for (size_t c = 0; c < Side; ++c) {
      // A query that has met no key yet has nothing to scale: any finite shift will do.
      shift[c] = peak[c] == -std::numeric_limits<W>::infinity() ? W(0) : peak[c];
      factor[c] = math::exp(top[c] - shift[c]);
      sum[c] *= factor[c];
    }
    top = peak;
    std::array<W, Side> total{};
    for (int64_t r = 0; r < rows; ++r) {
      W* s = scores + r * Side;
      for (size_t c = 0; c < Side; ++c) s[c] = math::exp(s[c] - shift[c]);
      for (size_t c = 0; c < Side; ++c) total[c] += s[c];
    }
    for (size_t c = 0; c < Side; ++c) sum[c] += total[c];
  }

  /// Brings a logit without a value into the denominators; `factor` is what sums of values lack.
  void join(W logit) {
    for (size_t c = 0; c < Side; ++c) {
      const W peak = top[c] > logit ? top[c] : logit;
      const bool none = peak == -std::numeric_limits<W>::infinity();
      const W to = none ? W(0) : peak;
      factor[c] = math::exp(top[c] - to);
      sum[c] = sum[c] * factor[c] + math::exp(logit - to);
      shift[c] = to;
    }
  }
};

/// Keys and values of one head, packed for products strip by strip, each when it is first met.
template <class W, class T>
class PackedHead {
 public:
  PackedHead(const Problem<W>& p, const Rows<const T>& k, const Rows<const T>& v)
      : p_(p),
        k_(k),
        v_(v),
        key_size_(packed_a_size<W>(p.side, p.head_dim)),
        value_size_(packed_b_size<W>(p.side, p.value_dim)),
        packed_(static_cast<size_t>(p.key_strips())) {}

  void start(int64_t b, int64_t kv) {
    b_ = b;
    kv_ = kv;
    data_ = scratch<W>(7, (key_size_ + value_size_) * p_.key_strips());
    std::fill(packed_.begin(), packed_.end(), false);
  }
  struct Strip {
    const W *keys, *values;
  };
  /// Keys [key, key + side).
  Strip at(int64_t key) {
    const int64_t i = key / p_.side;
    W* keys = data_ + i * (key_size_ + value_size_);
    W* values = keys + key_size_;
    if (!packed_[static_cast<size_t>(i)]) {
      packed_[static_cast<size_t>(i)] = true;
      pack_a<W>(p_.side, p_.head_dim, k_.at(b_, kv_, key), k_.row, int64_t{1}, keys);
      pack_b<W>(p_.side, p_.value_dim, v_.at(b_, kv_, key), v_.row, int64_t{1}, values);
    }
    return {keys, values};
  }

 private:
  const Problem<W>& p_;
  const Rows<const T>& k_;
  const Rows<const T>& v_;
  int64_t key_size_, value_size_, b_ = 0, kv_ = 0;
  W* data_ = nullptr;
  std::vector<bool> packed_;
};

/// What a thread reuses from strip to strip.
template <class W, class T>
struct Workspace {
  PackedHead<W, T> head;
  std::vector<int64_t> found;
  std::vector<PanelPair<W>> pairs;
};

template <class W, class T>
struct Forward {
  Scores<W> p;
  Rows<const T> q, k, v;
  Rows<T> out;
  W* lse;

  /// Queries [query, query + Side) of one head.
  template <int Side>
  void strip(int64_t b, int64_t h, int64_t query, Workspace<W, T>& work) const {
    constexpr int64_t square = Side * Side;
    constexpr int64_t chunk = std::max<int64_t>(1, most_scores<W> / square);
    p.list_keys(b, h, query, work.found);
    W* queries = scratch<W>(4, packed_b_size<W>(p.head_dim, Side));
    W* sums = scratch<W>(5, Side * p.value_dim);
    W* scores = scratch<W>(6, (chunk + 1) * square);
    pack_b<W>(p.head_dim, Side, q.at(b, h, query), int64_t{1}, q.row, queries);
    OnlineSoftmax<W, Side> softmax;
    const auto count = static_cast<int64_t>(work.found.size());
    for (int64_t from = 0; from < count; from += chunk) {
      const int64_t n = std::min(chunk, count - from);
      work.pairs.clear();
      for (int64_t i = 0; i < n; ++i) {
        const int64_t key = work.found[static_cast<size_t>(from + i)];
        const auto [keys, values] = work.head.at(key);
        W* s = scores + i * square;
        const PanelPair<W> pair{keys, queries};
        multiply_panels<W, W>(Side, Side, p.head_dim, {&pair, 1}, packed_a<W>(p.head_dim),
                              packed_b<W>(p.head_dim), p.scale, W(0), s, Side, 1);
        p.template shape<Side, false>(b, h, key, query, s, nullptr);
        work.pairs.push_back({s, values});
      }
      softmax.fold(scores, n * Side);
      if (p.drops)
        for (int64_t i = 0; i < n; ++i)
          drop<Side>(b, h, work.found[static_cast<size_t>(from + i)], query, scores + i * square,
                     scores + chunk * square);
      if (from > 0) rescale<Side>(softmax.factor, sums);
      multiply_panels<W, W>(Side, p.value_dim, Side, work.pairs, direct_a<W>(1, Side),
                            packed_b<W>(Side), W(1), W(from > 0), sums, p.value_dim, 1);
    }
    finish(b, h, query, softmax, sums);
  }

  template <int Side>
  void drop(int64_t b, int64_t h, int64_t key, int64_t query, W* weights, W* factors) const {
    p.template drop<Side, false>(b, h, key, query, factors);
    for (int e = 0; e < Side * Side; ++e) weights[e] *= factors[e];
  }

  template <int Side>
  void rescale(const std::array<W, Side>& factor, W* sums) const {
    for (size_t c = 0; c < Side; ++c)
      for (int64_t d = 0; d < p.value_dim; ++d)
        sums[static_cast<int64_t>(c) * p.value_dim + d] *= factor[c];
  }

  template <int Side>
  void finish(int64_t b, int64_t h, int64_t query, OnlineSoftmax<W, Side>& softmax, W* sums) const {
    if (p.sinks) softmax.join(p.sinks[h]);
    for (size_t c = 0; c < Side; ++c) {
      const auto lane = static_cast<int64_t>(c);
      if (!p.has(query + lane)) continue;
      T* to = out.at(b, h, query + lane);
      W& log_sum = lse[p.row_of(b, h, query + lane)];
      if (softmax.sum[c] == 0) {
        std::fill_n(to, p.value_dim, T(W(0)));
        log_sum = -std::numeric_limits<W>::infinity();
        continue;
      }
      log_sum = softmax.shift[c] + std::log(softmax.sum[c]);
      W* row = sums + lane * p.value_dim;
      const W inverse = (p.sinks ? softmax.factor[c] : W(1)) / softmax.sum[c];
      for (int64_t d = 0; d < p.value_dim; ++d) row[d] = inverse == 0 ? W(0) : row[d] * inverse;
      if (!all_finite(row, p.value_dim) && !std::isnan(log_sum))
        SingleRows<W, T>{p, q, k, v}.out(b, h, query + lane, log_sum, row);
      for (int64_t d = 0; d < p.value_dim; ++d) to[d] = T(row[d]);
    }
  }

  /// Part number t: some of the strips of one head, which has so many parts.
  template <int Side>
  void part_of_head(int64_t t, int64_t parts, Workspace<W, T>& work) const {
    const int64_t strips = p.query_strips(), part = t % parts;
    const int64_t h = t / parts % p.heads, b = t / parts / p.heads;
    work.head.start(b, h / p.group);
    for (int64_t s = strips * part / parts; s < strips * (part + 1) / parts; ++s)
      strip<Side>(b, h, p.query_from() + s * Side, work);
  }

  /// `tasks` parts of all heads, each of which has `parts`.
  template <int Side>
  void all_parts(int64_t tasks, int64_t parts) const {
    parallel_each_with(
        tasks, tasks > 1 ? whole_team() : 1,
        [&] {
          return Workspace<W, T>{{p, k, v}, {}, {}};
        },
        [&](int64_t t, Workspace<W, T>& work) { part_of_head<Side>(t, parts, work); });
  }

  void run() const {
    const int64_t strips = p.query_strips();
    // Parts of a head pack its keys anew, so heads are divided only where cores would stand idle.
    const int64_t wanted = 4 * threads();
    const int64_t parts = std::clamp<int64_t>(ceil_div(wanted, p.batch * p.heads), 1, strips);
    with_side<W>(p.side, [&](auto side) { all_parts<side>(p.batch * p.heads * parts, parts); });
  }
};

/// One sequence, or a batch of equal ones.
template <class T>
void attend(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
            const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
            const Sequence& sequence) {
  using W = Wide<T>;
  if (q.numel() == 0) return;
  const Tensor bias = wide_bias<W>(options.bias);
  const Scores<W> p(q, k, v, layout, options, bias, sequence);
  const int64_t from = p.query_from();
  const Tensor queries = operand<T>(q, 1, p.first_query - from, p.side);
  const Tensor keys = operand<T>(k, 1, 0, p.side), values = operand<T>(v, 1, 0, p.side);
  Forward<W, T>{p,
                Rows<const T>(queries, from),
                Rows<const T>(keys),
                Rows<const T>(values),
                Rows<T>(out, p.first_query),
                lse.data<W>()}
      .run();
}

/// Queries by their rows, keys and values in pages of whole squares.
template <class T>
void attend_pages(const Tensor& q, const PagedKeys& pages, const Layout& layout, const Tensor& out,
                  const Tensor& lse, const SparseAttentionOptions& options) {
  using W = Wide<T>;
  const Tensor k = detail::shape_of_pages(pages, pages.keys);
  const Tensor v = detail::shape_of_pages(pages, pages.values);
  const Tensor bias = wide_bias<W>(options.bias);
  const Sequence whole{0, 0, q.size(2)};
  const Scores<W> p(q, k, v, layout, options, bias, whole);
  if (pages.length == 0 || pages.keys.size(3) % p.side != 0) {
    const Tensor table = Tensor::from(std::span<const int64_t>(pages.table),
                                      {static_cast<int64_t>(pages.table.size())});
    return attend<T>(q, detail::gathered_pages(pages, pages.keys, table),
                     detail::gathered_pages(pages, pages.values, table), layout, out, lse, options,
                     whole);
  }
  const auto rows = [&](const Tensor& memory) {
    Rows<const T> x(memory.flatten(2, 3));
    x.table = pages.table.data();
    x.page = memory.size(3);
    return x;
  };
  const int64_t from = p.query_from();
  const Tensor queries = operand<T>(q, 1, p.first_query - from, p.side);
  Forward<W, T>{p,
                Rows<const T>(queries, from),
                rows(pages.keys),
                rows(pages.values),
                Rows<T>(out, p.first_query),
                lse.data<W>()}
      .run();
}

}  // namespace

const char* refused_head_dim(int64_t /*head_dim*/) { return nullptr; }

void paged_attention(const Tensor& q, const PagedKeys& pages, const Layout& layout,
                     const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                     Stream) {
  visit_floating("paged_attention", q.dtype(),
                 [&]<class T>(Type<T>) { attend_pages<T>(q, pages, layout, out, lse, options); });
}

void sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                      const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                      Stream) {
  visit_floating("sparse_attention", q.dtype(), [&]<class T>(Type<T>) {
    for_each_sequence(q, k, options,
                      [&](const Sequence& sequence, const Piece& queries, const Piece& keys) {
                        attend<T>(queries.of(q), keys.of(k), keys.of(v), layout, queries.of(out),
                                  lse, options, sequence);
                      });
  });
}

}  // namespace bs::cpu
