#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/attention/sparse_attention_call.h>
#include <bs/kernels/distribution.h>
#include <bs/kernels/sparse_attention_check.h>
#include <bs/lib/cuda/upload.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bs::cuda {

namespace {

std::vector<int32_t> words_of(const std::vector<int64_t>& starts) {
  return {starts.begin(), starts.end()};
}
int64_t longest(const std::vector<int64_t>& starts) {
  int64_t most = 0;
  for (size_t i = 1; i < starts.size(); ++i) most = std::max(most, starts[i] - starts[i - 1]);
  return most;
}

void set_scores(AttentionCall& p, const SparseAttentionOptions& o) {
  device::AttentionScores<void, void>& s = p.scores;
  const auto rule = [&p](device::AttentionRule r, bool has) {
    if (has) p.rules |= r;
    return has;
  };
  if (rule(device::rule_softcap, o.softcap > 0)) s.softcap = o.softcap;
  if (rule(device::rule_bias, o.bias.defined())) s.bias = heads_of<const void>(o.bias);
  if (rule(device::rule_mask, o.mask.defined())) {
    const auto mask = heads_of<const void>(o.mask);
    s.mask = {static_cast<const unsigned char*>(mask.data), mask.batch, mask.head, mask.row};
  }
  if (rule(device::rule_bits, o.packed_mask.defined())) {
    const Layout& l = *o.packed_mask.layout();
    s.mask_numbers = o.packed_mask.numbers().data<int32_t>();
    s.mask_bits = o.packed_mask.bits().data<uint8_t>();
    s.mask_heads = l.heads();
    s.mask_rows = l.rows();
    s.mask_cols = l.cols();
  }
  s.origin = static_cast<int>(o.offset);
  if (rule(device::rule_table, o.relative_bias.defined())) {
    const int width = static_cast<int>(o.relative_bias.size(1));
    s.table = o.relative_bias.data();
    s.reach = width / 2;
    s.table_head = o.relative_bias.size(0) == 1 ? 0 : width;
  }
  if (rule(device::rule_slopes, o.alibi_slopes.defined())) s.slopes = o.alibi_slopes.data();
  if (o.sinks.defined()) s.sinks = o.sinks.data();
  if (rule(device::rule_dropout, o.dropout > 0)) {
    s.seed = o.random.seed;
    s.random_offset = o.random.offset;
    s.random_shift = reinterpret_cast<const unsigned long long*>(o.random.shift);
    s.limit = static_cast<unsigned>(threshold(o.dropout));
    s.kept = 1 / (1 - o.dropout);
  }
}

}  // namespace

AttentionCall attention_call(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Layout& layout, const SparseAttentionOptions& options) {
  // The kernels number pieces of blocks in 24 bits.
  const int64_t pieces = std::max(layout.height(), layout.width()) / std::min(layout.block(), 16);
  BS_CHECK(pieces < 1 << 24,
           "sparse_attention: {} queries and {} keys are more than the CUDA kernels can number",
           layout.height(), layout.width());
  const Tensor& mask = options.key_padding_mask;
  const detail::AttentionBand band = detail::attention_band(options);
  AttentionCall p{.dtype = q.dtype(),
                  .sequences = detail::attention_sequences(q, options),
                  .longest_queries = q.size(2),
                  .longest_keys = k.size(2)};
  p.shape = {.heads = static_cast<int>(q.size(1)),
             .group = static_cast<int>(q.size(1) / k.size(1)),
             .queries = static_cast<int>(q.size(2)),
             .keys = static_cast<int>(k.size(2)),
             .head_dim = static_cast<int>(q.size(3)),
             .value_dim = static_cast<int>(v.size(3)),
             .block = layout.block(),
             .layout_heads = layout.heads(),
             .first_query = static_cast<int>(*options.first_query),
             .first = static_cast<int>(band.first),
             .last = static_cast<int>(band.last),
             .heavy_end = band.bounded_after() && !band.bounded_before(),
             .tiles = 0,
             .last_sequence = static_cast<int>(p.sequences) - 1,
             .scale = options.scale,
             .seen = mask.defined() ? static_cast<const unsigned char*>(mask.data()) : nullptr};
  if (band.bounded_before()) p.rules |= device::rule_window;
  set_scores(p, options);
  if (!options.query_starts.empty()) {
    p.rules |= device::rule_ragged;
    p.longest_queries = longest(options.query_starts);
    p.longest_keys = longest(options.key_starts);
    p.query_starts = upload(words_of(options.query_starts), q.device());
    p.key_starts = upload(words_of(options.key_starts), q.device());
    p.scores.query_starts = p.query_starts.data<int32_t>();
    p.scores.key_starts = p.key_starts.data<int32_t>();
  }
  return p;
}

Tensor aligned_heads(const Tensor& x) {
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  bool fits = reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
  for (int axis = 0; axis < 3; ++axis)
    fits = fits && (x.size(axis) == 1 || x.strides()[axis] * size % 16 == 0);
  return fits ? x : clone(x);
}

device::AttentionForwardArguments<void, void> forward_arguments(const AttentionCall& call,
                                                                const Tensor& q, const Tensor& k,
                                                                const Tensor& v,
                                                                const Layout& layout,
                                                                const SparseAttentionResult& to) {
  return {.problem = call.shape,
          .scores = call.scores,
          .rows = rows_of(layout.view(q.device())),
          .q = heads_of<const void>(q),
          .k = heads_of<const void>(k),
          .v = heads_of<const void>(v),
          .out = heads_of<void>(to.out),
          .lse = to.lse.data()};
}

unsigned checked_ctas(const char* op, int64_t ctas) {
  BS_CHECK(ctas <= INT32_MAX, "{}: {} tiles are more than one launch can have", op, ctas);
  return static_cast<unsigned>(ctas);
}

}  // namespace bs::cuda
