#pragma once
/** @file Attention over a dense mask, by naive loops in double, forward and backward. */
#include <bs/kernels/sparse_attention.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace bs::test {

/// What is attended to by whom, element by element: [batch, heads, queries, keys].
struct Visible {
  int64_t batch, heads, queries, keys;
  std::vector<char> at;

  bool operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return at[static_cast<size_t>(((b * heads + h) * queries + i) * keys + j)] != 0;
  }
};

/// A pattern and what else hides keys.
struct Pattern {
  LayoutPtr layout;
  bool causal = false;
  std::vector<int64_t> lengths = {};  ///< keys kept of each batch item; empty: all
  double scale = 0;

  SparseAttentionOptions options() const {
    SparseAttentionOptions o{.scale = scale, .causal = causal};
    if (lengths.empty()) return o;
    Reference keep({static_cast<int64_t>(lengths.size()), layout->width()});
    for (size_t b = 0; b < lengths.size(); ++b)
      for (int64_t j = 0; j < lengths[b]; ++j) keep.at({static_cast<int64_t>(b), j}) = 1;
    o.key_padding_mask = keep.tensor(boolean, test_device());
    return o;
  }

  Visible visible(int64_t batch, int64_t heads) const {
    const Layout& l = *layout;
    Visible v{batch, heads, l.height(), l.width(), {}};
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < v.queries; ++i)
          for (int64_t j = 0; j < v.keys; ++j) {
            const bool kept =
                l.contains(l.heads() == 1 ? 0 : static_cast<int>(h),
                           static_cast<int>(i / l.block()), static_cast<int>(j / l.block()));
            const bool padding = !lengths.empty() && j >= lengths[static_cast<size_t>(b)];
            v.at.push_back(kept && !(causal && j > i) && !padding);
          }
    return v;
  }
};

/// Row i of head h of batch item b of r [batch, heads, sequence, head_dim].
template <class AnyReference>
auto row(AnyReference& r, int64_t b, int64_t h, int64_t i) {
  return &r.values[static_cast<size_t>(((b * r.shape[1] + h) * r.shape[2] + i) * r.shape[3])];
}

inline double dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

inline void add(double* y, double factor, const double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

inline double scale_of(const Pattern& pattern, int64_t head_dim) {
  return pattern.scale != 0 ? pattern.scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

/// Weights of one query over all keys, zeros where it sees none.
inline std::vector<double> weights(const Reference& q, const Reference& k, const Visible& visible,
                                   double scale, int64_t b, int64_t h, int64_t i) {
  const int64_t kv = h / (q.shape[1] / k.shape[1]);
  std::vector<double> p(static_cast<size_t>(visible.keys),
                        -std::numeric_limits<double>::infinity());
  for (int64_t j = 0; j < visible.keys; ++j)
    if (visible(b, h, i, j))
      p[static_cast<size_t>(j)] = scale * dot(row(q, b, h, i), row(k, b, kv, j), q.shape[3]);
  double top = -std::numeric_limits<double>::infinity();
  for (double s : p) top = std::max(top, s);
  double sum = 0;
  for (double& w : p) sum += w = std::isinf(w) ? 0 : std::exp(w - top);
  for (double& w : p) w = sum > 0 ? w / sum : 0;
  return p;
}

inline Reference attend(const References& in, const Pattern& pattern, const Visible& visible) {
  const Reference &q = in[0], &v = in[2];
  const int64_t n = q.shape[3], group = q.shape[1] / v.shape[1];
  Reference out(q.shape);
  for (int64_t b = 0; b < q.shape[0]; ++b)
    for (int64_t h = 0; h < q.shape[1]; ++h)
      for (int64_t i = 0; i < q.shape[2]; ++i) {
        const auto p = weights(q, in[1], visible, scale_of(pattern, n), b, h, i);
        for (int64_t j = 0; j < visible.keys; ++j)
          add(row(out, b, h, i), p[static_cast<size_t>(j)], row(v, b, h / group, j), n);
      }
  return out;
}

/// Gradients of <dout, attend(q, k, v)> by the textbook's formulas over dense rows.
inline References attend_backward(const References& in, const Reference& dout,
                                  const Pattern& pattern, const Visible& visible) {
  const Reference &q = in[0], &k = in[1], &v = in[2];
  const int64_t n = q.shape[3], group = q.shape[1] / k.shape[1];
  const double scale = scale_of(pattern, n);
  References g = {Reference(q.shape), Reference(k.shape), Reference(v.shape)};
  for (int64_t b = 0; b < q.shape[0]; ++b)
    for (int64_t h = 0; h < q.shape[1]; ++h)
      for (int64_t i = 0; i < q.shape[2]; ++i) {
        const int64_t kv = h / group;
        const auto p = weights(q, k, visible, scale, b, h, i);
        std::vector<double> dp(p.size());
        double mean = 0;
        for (size_t j = 0; j < p.size(); ++j) {
          const auto at = static_cast<int64_t>(j);
          dp[j] = dot(row(dout, b, h, i), row(v, b, kv, at), n);
          add(row(g[2], b, kv, at), p[j], row(dout, b, h, i), n);
          mean += p[j] * dp[j];
        }
        for (size_t j = 0; j < p.size(); ++j) {
          const double ds = p[j] * (dp[j] - mean) * scale;
          add(row(g[0], b, h, i), ds, row(k, b, kv, static_cast<int64_t>(j)), n);
          add(row(g[1], b, kv, static_cast<int64_t>(j)), ds, row(q, b, h, i), n);
        }
      }
  return g;
}

}  // namespace bs::test
