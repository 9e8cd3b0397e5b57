#include <bs/kernels/sparse_attention_check.h>

#include <bs/kernels/copy.h>

#include <algorithm>
#include <cmath>

namespace bs::detail {

namespace {

void check_operands(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  BS_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4,
           "{}: q {}, k {} and v {} are not [batch, heads, sequence, head_dim]", op, q.shape(),
           k.shape(), v.shape());
  for (const Tensor& other : {k, v}) {
    check_same_dtype(op, q, other);
    check_same_device(op, q, other);
  }
  BS_CHECK(k.shape().slice(0, 3) == v.shape().slice(0, 3),
           "{}: k {} and v {} differ in batch, heads or keys", op, k.shape(), v.shape());
  BS_CHECK(q.size(0) == k.size(0), "{}: batch sizes differ: q {}, k {}", op, q.shape(), k.shape());
  BS_CHECK(q.size(3) == k.size(3), "{}: head_dims differ: q {}, k {}", op, q.shape(), k.shape());
  BS_CHECK(q.size(3) > 0 && v.size(3) > 0, "{}: q {} or v {} has a head_dim of 0", op, q.shape(),
           v.shape());
  BS_CHECK(q.size(1) > 0, "{}: q {} has no heads", op, q.shape());
  BS_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0,
           "{}: {} heads of k do not divide {} heads of q", op, k.size(1), q.size(1));
  for (const int64_t dim : {q.size(3), v.size(3)})
    if (const char* const wanted = BS_ASK(q.device(), refused_head_dim, dim))
      BS_THROW(Error, "{}: head_dim {} on {} is not {}", op, dim, q.device(), wanted);
}

/// Whether `length` elements end in the last of `blocks` blocks.
bool fills(int64_t length, int64_t blocks, int64_t block) {
  return length / block + (length % block == 0 ? 0 : 1) == blocks;
}

void check_layout(const char* op, const Tensor& q, const Tensor& k, const Layout& layout,
                  const SparseAttentionOptions& options) {
  const int64_t heads = q.size(1), sequences = attention_sequences(q, options);
  BS_CHECK(layout.heads() == 1 || layout.heads() == heads || layout.heads() == sequences * heads,
           "{}: a layout of {} heads for q {} of {} heads", op, layout.heads(), q.shape(), heads);
  BS_CHECK(layout.height() < AttentionBand::far && layout.width() < AttentionBand::far,
           "{}: {} queries and {} keys are more than 2^30", op, layout.height(), layout.width());
  if (!options.query_starts.empty()) return;
  if (options.first_query) {
    BS_CHECK(*options.first_query >= 0 && *options.first_query <= layout.height() - q.size(2) &&
                 k.size(2) <= layout.width(),
             "{}: {} queries from {} on and {} keys reach over a layout of {} x {} blocks of {}",
             op, q.size(2), *options.first_query, k.size(2), layout.rows(), layout.cols(),
             layout.block());
    return;
  }
  BS_CHECK(fills(q.size(2), layout.rows(), layout.block()) &&
               fills(k.size(2), layout.cols(), layout.block()),
           "{}: {} queries and {} keys do not fit a layout of {} x {} blocks of {}", op, q.size(2),
           k.size(2), layout.rows(), layout.cols(), layout.block());
}

void check_starts(const char* op, const char* name, const std::vector<int64_t>& starts,
                  int64_t total, int64_t longest) {
  BS_CHECK(!starts.empty() && starts.front() == 0 && starts.back() == total &&
               std::is_sorted(starts.begin(), starts.end()),
           "{}: {} do not ascend from 0 to {}", op, name, total);
  for (size_t i = 1; i < starts.size(); ++i)
    BS_CHECK(starts[i] - starts[i - 1] <= longest,
             "{}: {}: sequence {} of {} is longer than the layout's {}", op, name, i - 1,
             starts[i] - starts[i - 1], longest);
}

void check_ragged(const char* op, const Tensor& q, const Tensor& k, const Layout& layout,
                  const SparseAttentionOptions& o) {
  if (o.query_starts.empty() && o.key_starts.empty()) return;
  BS_CHECK(q.size(0) == 1, "{}: ragged sequences lie in a batch of 1, not in q {}", op, q.shape());
  BS_CHECK(o.query_starts.size() == o.key_starts.size(), "{}: {} query_starts and {} key_starts",
           op, o.query_starts.size(), o.key_starts.size());
  BS_CHECK(
      !o.key_padding_mask.defined() && !o.mask.defined() && !o.bias.defined() && !o.first_query,
      "{}: ragged sequences go with no key_padding_mask, mask, bias or first_query", op);
  check_starts(op, "query_starts", o.query_starts, q.size(2), layout.height());
  check_starts(op, "key_starts", o.key_starts, k.size(2), layout.width());
}

/// A mask or bias over all scores.
void check_dense(const char* op, const char* name, const Tensor& x, const Tensor& q,
                 const Tensor& k) {
  if (!x.defined()) return;
  check_same_device(op, q, x);
  const bool fits = x.rank() == 4 && (x.size(0) == 1 || x.size(0) == q.size(0)) &&
                    (x.size(1) == 1 || x.size(1) == q.size(1)) && x.size(2) == q.size(2) &&
                    x.size(3) == k.size(2);
  BS_CHECK(fits, "{}: {} {} is not [batch or 1, heads or 1, queries, keys] of q {} and k {}", op,
           name, x.shape(), q.shape(), k.shape());
}

void check_packed(const char* op, const Tensor& q, const Layout& layout,
                  const SparseAttentionOptions& o) {
  if (!o.packed_mask.defined()) return;
  const Layout& l = *o.packed_mask.layout();
  const int64_t heads = q.size(1), sequences = attention_sequences(q, o);
  BS_CHECK(
      l.block() == layout.block() && l.rows() == layout.rows() && l.cols() == layout.cols() &&
          (l.heads() == 1 || l.heads() == heads || l.heads() == sequences * heads),
      "{}: packed_mask of {} heads of {} x {} blocks of {} for {} heads of {} x {} blocks of {}",
      op, l.heads(), l.rows(), l.cols(), l.block(), heads, layout.rows(), layout.cols(),
      layout.block());
  check_same_device(op, q, o.packed_mask.numbers());
}

/// A number of each head.
void check_heads(const char* op, const char* name, const Tensor& x, const Tensor& q) {
  if (!x.defined()) return;
  check_same_device(op, q, x);
  BS_CHECK(x.shape() == Shape({q.size(1)}) && is_floating(x.dtype()),
           "{}: {} {} {} is not floating [heads] of q {}", op, name, x.dtype(), x.shape(),
           q.shape());
}

void check_scores(const char* op, const Tensor& q, const Tensor& k,
                  const SparseAttentionOptions& o) {
  check_dense(op, "mask", o.mask, q, k);
  check_dense(op, "bias", o.bias, q, k);
  if (o.mask.defined())
    BS_CHECK(o.mask.dtype() == boolean, "{}: mask is {}, not bool", op, o.mask.dtype());
  if (o.bias.defined()) check_same_dtype(op, q, o.bias);
  check_heads(op, "alibi_slopes", o.alibi_slopes, q);
  check_heads(op, "sinks", o.sinks, q);
  if (!o.relative_bias.defined()) return;
  const Tensor& table = o.relative_bias;
  check_same_device(op, q, table);
  BS_CHECK(is_floating(table.dtype()) && table.rank() == 2 && table.size(1) % 2 == 1 &&
               (table.size(0) == 1 || table.size(0) == q.size(1)),
           "{}: relative_bias {} {} is not floating [heads or 1, 2 n + 1] of q {}", op,
           table.dtype(), table.shape(), q.shape());
}

/// A factor of scores, or a cap; 0 says something else. In the type of sums it must be a number
/// that is not 0, which GPUs take small ones for. Of an infinite one a score of 0 would be NaN.
void check_factor(const char* op, const char* name, double x, DType sums) {
  BS_CHECK(std::isfinite(x) && x >= 0, "{}: {} {} is negative or not finite", op, name, x);
  // Of 2^127, log2(e) times as much is a number too.
  BS_CHECK(sums == f64 || x == 0 || (x >= 0x1p-126 && x <= 0x1p127),
           "{}: {} {} is not between 2^-126 and 2^127, for sums of {}", op, name, x, sums);
}

void check_numbers(const char* op, DType sums, const SparseAttentionOptions& o) {
  check_factor(op, "scale", o.scale, sums);
  check_factor(op, "softcap", o.softcap, sums);
  BS_CHECK(o.dropout >= 0 && o.dropout < 1, "{}: dropout {} is outside [0, 1)", op, o.dropout);
  for (const auto& side : {o.window_before, o.window_after})
    BS_CHECK(!side || *side >= 0, "{}: a window reaches {} keys far", op, side.value_or(0));
  BS_CHECK(o.offset > -AttentionBand::far && o.offset < AttentionBand::far,
           "{}: offset {} is beyond 2^30", op, o.offset);
}

}  // namespace

void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayoutPtr& layout, const SparseAttentionOptions& options) {
  BS_CHECK(layout != nullptr, "{}: no layout", op);
  check_operands(op, q, k, v);
  check_numbers(op, attention_sums(q), options);
  check_layout(op, q, k, *layout, options);
  check_ragged(op, q, k, *layout, options);
  check_packed(op, q, *layout, options);
  check_scores(op, q, k, options);
  const Tensor& mask = options.key_padding_mask;
  if (!mask.defined()) return;
  BS_CHECK(mask.dtype() == boolean, "{}: key_padding_mask is {}, not bool", op, mask.dtype());
  check_same_device(op, q, mask);
  BS_CHECK(mask.shape() == Shape({k.size(0), k.size(2)}),
           "{}: key_padding_mask {} is not [batch, keys] of k {}", op, mask.shape(), k.shape());
}

void check_attention_forward(const char* op, const Tensor& q, const Tensor& v,
                             const SparseAttentionResult& forward, const Tensor& dout) {
  const Shape shape{q.size(0), q.size(1), q.size(2), v.size(3)};
  BS_CHECK(forward.out.shape() == shape && dout.shape() == shape,
           "{}: out {} and dout {} for q {} and v {}", op, forward.out.shape(), dout.shape(),
           q.shape(), v.shape());
  for (const Tensor& other : {forward.out, dout}) {
    check_same_dtype(op, q, other);
    check_same_device(op, q, other);
  }
  check_same_device(op, q, forward.lse);
  BS_CHECK(forward.lse.shape() == q.shape().slice(0, 3), "{}: lse {} for q {}", op,
           forward.lse.shape(), q.shape());
  BS_CHECK(forward.lse.dtype() == attention_sums(q), "{}: lse is {}, not {}, for q of {}", op,
           forward.lse.dtype(), attention_sums(q), q.dtype());
}

Tensor dense_attention_rows(const Tensor& x) {
  return x.strides().back() == 1 || x.size(-1) == 1 ? x : clone(x);
}

SparseAttentionOptions resolved_attention(const SparseAttentionOptions& options, const Tensor& q,
                                          const Tensor& k) {
  SparseAttentionOptions r = options;
  if (r.scale == 0) r.scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  r.first_query = options.first_query.value_or(0);
  if (r.key_padding_mask.defined()) r.key_padding_mask = contiguous(r.key_padding_mask);
  for (Tensor* table : {&r.relative_bias, &r.alibi_slopes, &r.sinks})
    if (table->defined()) *table = contiguous(cast(*table, attention_sums(q)));
  for (Tensor* dense : {&r.mask, &r.bias})
    if (dense->defined())
      *dense = dense_attention_rows(*dense).expand({q.size(0), q.size(1), q.size(2), k.size(2)});
  return r;
}

Tensor empty_attention_heads(const Tensor& like, int64_t head_dim) {
  const Shape& s = like.shape();
  return Tensor::empty({s[0], s[2], s[1], head_dim}, like.dtype(), like.device())
      .permute({0, 2, 1, 3});
}

SparseAttentionResult empty_attention_result(const Tensor& q, const Tensor& v) {
  return {empty_attention_heads(q, v.size(3)),
          Tensor::empty(q.shape().slice(0, 3), attention_sums(q), q.device())};
}

AttentionBand attention_band(const SparseAttentionOptions& o) {
  AttentionBand band;
  const auto bound = [](int64_t x) {
    return std::clamp(x, -AttentionBand::far, AttentionBand::far);
  };
  if (o.window_before)
    band.first = bound(o.offset - std::min(*o.window_before, AttentionBand::far));
  if (o.causal) band.last = o.offset;
  if (o.window_after) {
    const int64_t last = bound(o.offset + std::min(*o.window_after, AttentionBand::far));
    band.last = std::min(band.last, last);
  }
  return band;
}

}  // namespace bs::detail
