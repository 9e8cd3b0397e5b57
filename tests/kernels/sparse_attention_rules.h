#pragma once
/** @file Attention with every option, one score at a time in double. */
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/philox.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace bs::test {

/// A problem and its options. Options that are tensors are kept as references and are filled in by
/// options(); those that are inputs of the operation are named by their places among the inputs.
struct AttentionRules {
  LayoutPtr layout;
  SparseAttentionOptions plain = {};  ///< all but the tensors
  Reference keep = Reference(), mask = Reference(), slopes = Reference();
  int bias = 0, table = 0, sinks = 0;  ///< places among the inputs; 0: none

  SparseAttentionOptions options() const {
    SparseAttentionOptions o = plain;
    if (!keep.shape.empty()) o.key_padding_mask = keep.tensor(boolean, test_device());
    if (!mask.shape.empty()) o.mask = mask.tensor(boolean, test_device());
    if (!slopes.shape.empty()) o.alibi_slopes = slopes.tensor(f32, test_device());
    return o;
  }
};

/// One query of one head: where it stands and what there is to see.
struct AttentionRow {
  int64_t sequence, b, h, i, key_begin, keys;  ///< i and keys count within the sequence
  int64_t row;                                 ///< in lse
};

inline double shared_at(const Reference& x, int64_t b, int64_t h, int64_t i, int64_t j) {
  return x.at({x.shape[0] == 1 ? 0 : b, x.shape[1] == 1 ? 0 : h, i, j});
}

inline bool sees(const AttentionRules& r, const References& in, const AttentionRow& at,
                 int64_t heads, int64_t j) {
  const Layout& l = *r.layout;
  const SparseAttentionOptions& o = r.plain;
  const int64_t place = o.first_query.value_or(0) + at.i, d = j - place - o.offset;
  const int64_t of = l.heads() == 1 ? 0 : l.heads() == heads ? at.h : at.sequence * heads + at.h;
  if (!l.contains(static_cast<int>(of), static_cast<int>(place / l.block()),
                  static_cast<int>(j / l.block())))
    return false;
  if (o.causal && d > 0) return false;
  if (o.window_before && d < -*o.window_before) return false;
  if (o.window_after && d > *o.window_after) return false;
  if (!r.keep.shape.empty() && r.keep.at({at.b, j}) == 0) return false;
  if (!r.mask.shape.empty() && shared_at(r.mask, at.b, at.h, at.i, j) == 0) return false;
  return r.bias == 0 ||
         std::isfinite(shared_at(in[static_cast<size_t>(r.bias)], at.b, at.h, at.i, j));
}

/// The output of one query into `out`.
inline void attend_row(const AttentionRules& r, const References& in, const AttentionRow& at,
                       double* out) {
  const Reference &q = in[0], &k = in[1], &v = in[2];
  const SparseAttentionOptions& o = r.plain;
  const int64_t heads = q.shape[1], kv = at.h / (heads / k.shape[1]);
  const int64_t n = q.shape[3], value_dim = v.shape[3];
  const int64_t query = r.plain.query_starts.empty()
                            ? at.i
                            : r.plain.query_starts[static_cast<size_t>(at.sequence)] + at.i;
  std::vector<double> s(static_cast<size_t>(at.keys), -std::numeric_limits<double>::infinity());
  const double* of_query = &q.at({at.b, at.h, query, 0});
  for (int64_t j = 0; j < at.keys; ++j) {
    if (!sees(r, in, at, heads, j)) continue;
    const double* of_key = &k.at({at.b, kv, at.key_begin + j, 0});
    double x = std::inner_product(of_query, of_query + n, of_key, 0.0);
    x *= o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(n));
    if (o.softcap != 0) x = o.softcap * std::tanh(x / o.softcap);
    const int64_t d = j - o.first_query.value_or(0) - at.i - o.offset;
    if (r.bias != 0) x += shared_at(in[static_cast<size_t>(r.bias)], at.b, at.h, at.i, j);
    if (r.table != 0) {
      const Reference& table = in[static_cast<size_t>(r.table)];
      const int64_t reach = table.shape[1] / 2;
      x += table.at({table.shape[0] == 1 ? 0 : at.h, reach + std::clamp(d, -reach, reach)});
    }
    if (!r.slopes.shape.empty()) x -= r.slopes.at({at.h}) * static_cast<double>(std::abs(d));
    s[static_cast<size_t>(j)] = x;
  }
  double top = *std::max_element(s.begin(), s.end());
  if (r.sinks != 0) top = std::max(top, in[static_cast<size_t>(r.sinks)].at({at.h}));
  double sum = r.sinks != 0 ? std::exp(in[static_cast<size_t>(r.sinks)].at({at.h}) - top) : 0;
  for (double x : s) sum += std::isinf(x) ? 0 : std::exp(x - top);
  for (int64_t j = 0; j < at.keys; ++j) {
    if (std::isinf(s[static_cast<size_t>(j)])) continue;
    double weight = std::exp(s[static_cast<size_t>(j)] - top) / sum;
    if (o.dropout > 0) {
      const auto block = static_cast<uint64_t>(at.row) << 28 | static_cast<uint64_t>(j / 4);
      const double word = philox(o.random.seed, block, o.random.offset).word[j % 4];
      weight = word < std::floor(o.dropout * 0x1p32) ? 0 : weight / (1 - o.dropout);
    }
    const double* value = &v.at({at.b, kv, at.key_begin + j, 0});
    for (int64_t e = 0; e < value_dim; ++e) out[e] += weight * value[e];
  }
}

inline Reference attend(const AttentionRules& r, const References& in) {
  const Reference &q = in[0], &k = in[1], &v = in[2];
  const auto& starts = r.plain.query_starts;
  Reference out({q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
  for (int64_t b = 0; b < q.shape[0]; ++b)
    for (int64_t h = 0; h < q.shape[1]; ++h)
      for (int64_t i = 0; i < q.shape[2]; ++i) {
        AttentionRow at{b, b, h, i, 0, k.shape[2], (b * q.shape[1] + h) * q.shape[2] + i};
        if (!starts.empty()) {
          at.sequence = 0;
          while (starts[static_cast<size_t>(at.sequence) + 1] <= i) ++at.sequence;
          const auto s = static_cast<size_t>(at.sequence);
          at.i = i - starts[s];
          at.key_begin = r.plain.key_starts[s];
          at.keys = r.plain.key_starts[s + 1] - at.key_begin;
        }
        if (at.keys > 0)
          attend_row(r, in, at, &out.values[static_cast<size_t>(at.row * v.shape[3])]);
      }
  return out;
}

}  // namespace bs::test
