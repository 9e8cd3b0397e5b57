#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/attention/sparse_attention_kernels.h>
#include <bs/kernels/cuda/attention/sparse_attention_stored_scores.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup_backward.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup_case.h>
#include <bs/kernels/distribution.h>
#include <bs/kernels/sparse_attention_check.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/upload.h>
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

namespace {

/// `x` itself where its rows begin at multiples of 16 bytes, else a dense copy.
Tensor aligned(const Tensor& x) {
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  bool fits = reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
  for (int axis = 0; axis < 3; ++axis)
    fits = fits && (x.size(axis) == 1 || x.strides()[axis] * size % 16 == 0);
  return fits ? x : clone(x);
}

using Forward = device::AttentionForwardArguments<void, void>;
using Backward = device::AttentionBackwardArguments<void, void>;
using Scores = device::AttentionScores<void, void>;

/// For operands: device::AttentionRows<const void>; for results: <void>.
template <class Void>
device::AttentionRows<Void> heads_of(const Tensor& x) {
  return {x.data(), x.strides()[0], x.strides()[1], x.strides()[2]};
}

/// A problem as the kernels take it, and what its arguments point at.
struct Problem {
  device::AttentionProblem shape = {};
  Scores scores = {};
  unsigned rules = 0;
  DType dtype = f32;
  int64_t sequences = 0, longest_queries = 0, longest_keys = 0;
  Tensor query_starts = {}, key_starts = {};
};

std::vector<int32_t> words_of(const std::vector<int64_t>& starts) {
  return {starts.begin(), starts.end()};
}
int64_t longest(const std::vector<int64_t>& starts) {
  int64_t most = 0;
  for (size_t i = 1; i < starts.size(); ++i) most = std::max(most, starts[i] - starts[i - 1]);
  return most;
}

void set_scores(Problem& p, const SparseAttentionOptions& o) {
  Scores& s = p.scores;
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

Problem problem_of(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                   const SparseAttentionOptions& options) {
  // The kernels number pieces of blocks in 24 bits.
  const int64_t pieces = std::max(layout.height(), layout.width()) / std::min(layout.block(), 16);
  BS_CHECK(pieces < 1 << 24,
           "sparse_attention: {} queries and {} keys are more than the CUDA kernels can number",
           layout.height(), layout.width());
  const Tensor& mask = options.key_padding_mask;
  const detail::AttentionBand band = detail::attention_band(options);
  Problem p{.dtype = q.dtype(),
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

/// Kernels can be emitted for these alone.
void check_floating(const char* op, DType dtype) {
  visit_floating(op, dtype, [](auto) {});
}

device::BlockLines rows_of(const LayoutView& v) {
  return {v.row_offsets, v.col_of, v.heads, v.rows};
}

device::BlockLines columns_of(const LayoutView& v) {
  return {v.col_offsets, v.transposed_row, v.heads, v.cols};
}

unsigned checked_ctas(const char* op, int64_t ctas) {
  BS_CHECK(ctas <= INT32_MAX, "{}: {} tiles are more than one launch can have", op, ctas);
  return static_cast<unsigned>(ctas);
}

int padded_dim(const Problem& p) {
  return sparse_attention_dim(static_cast<int>(size_of(p.dtype)),
                              std::max(p.shape.head_dim, p.shape.value_dim));
}

/// A warp for each of `warps` rows. Where `asked` points at a word, they do nothing if that is 0.
template <class Arguments>
void launch_single(const char* op, const jit::Kernel& kernel, int64_t warps,
                   const Arguments& arguments, int64_t length, Stream stream,
                   const int* asked = nullptr) {
  if (warps == 0) return;
  const int64_t ctas = ceil_div(warps * 32, sparse_attention_threads);
  const jit::LaunchShape shape{.grid = dim3(checked_ctas(op, ctas)),
                               .block = dim3(sparse_attention_threads)};
  if (asked)
    jit::launch(kernel, shape, stream, arguments, static_cast<int>(length), asked);
  else
    jit::launch(kernel, shape, stream, arguments, static_cast<int>(length));
}

/// A CTA for every tile of rows of `heads` heads of each sequence, of `length` rows at most. Where
/// `asked` points at a word, they do nothing if that is 0.
template <class Arguments>
void launch_pass(const char* op, AttentionPass pass, const Problem& p, int64_t length,
                 int64_t heads, Arguments arguments, Stream stream, const int* asked = nullptr) {
  static auto* const family = new jit::KernelFamily<AttentionKernel>;
  if (length == 0 || heads == 0 || p.sequences == 0) return;
  const int size = static_cast<int>(size_of(p.dtype));
  const bool plain = (p.rules & ~unsigned{device::rule_ragged}) == 0;
  const AttentionKernel k{.pass = pass,
                          .dtype = p.dtype,
                          .dim = padded_dim(p),
                          .whole = sparse_attention_whole(size, p.shape.block, plain),
                          .rules = p.rules,
                          .shared_bytes = device_properties(stream.device()).shared_memory_optin,
                          .asked = asked != nullptr};
  const SparseAttentionTile tile = tile_of(k);
  const jit::Kernel& kernel = family->get(k, stream.device(), [&] { return attention_source(k); });
  if (tile.cols == 0) {
    launch_single(op, kernel, p.sequences * heads * length, arguments, length, stream);
    return;
  }
  const int64_t rows = sparse_attention_rows(size);
  const int64_t begin = is_key_pass(pass) ? 0 : p.shape.first_query % rows;
  arguments.problem.tiles = static_cast<int>(ceil_div(begin + length, rows));
  const unsigned ctas = checked_ctas(op, arguments.problem.tiles * heads * p.sequences);
  const jit::LaunchShape shape{
      .grid = dim3(ctas),
      .block = dim3(sparse_attention_threads),
      .shared_bytes = sparse_attention_shared_bytes(pass, size, k.dim, tile)};
  if (asked)
    jit::launch(kernel, shape, stream, arguments, asked);
  else
    jit::launch(kernel, shape, stream, arguments);
}

/// Numbers of every query, a warp a query.
void launch_numbers(DType dtype, int64_t rows, const Backward& arguments, Stream stream) {
  static auto* const family = new jit::KernelFamily<DType>;
  constexpr unsigned threads = 256;
  if (rows == 0) return;
  const jit::Kernel& kernel =
      family->get(dtype, stream.device(), [&] { return attention_numbers_source(dtype); });
  const int64_t ctas = ceil_div(rows * 32, threads);
  jit::launch(
      kernel,
      {.grid = dim3(checked_ctas("sparse_attention_backward", ctas)), .block = dim3(threads)},
      stream, arguments, static_cast<long long>(rows));
}

/// Gradients of queries, keys and values; `asked` as launch_pass has it. Whoever asks has found the
/// `numbers` of all queries.
void launch_backward(const Problem& p, int64_t numbers, const Backward& arguments, Stream stream,
                     const int* asked) {
  const int64_t heads = p.shape.heads, kv_heads = heads / p.shape.group;
  constexpr const char* op = "sparse_attention_backward";
  if (!asked) launch_numbers(p.dtype, numbers, arguments, stream);
  const auto key_pass = [&](AttentionPass pass) {
    launch_pass(op, pass, p, p.longest_keys, kv_heads, arguments, stream, asked);
  };
  launch_pass(op, AttentionPass::query_gradient, p, p.longest_queries, heads, arguments, stream,
              asked);
  if (sparse_attention_splits(padded_dim(p))) {
    key_pass(AttentionPass::key_gradient);
    key_pass(AttentionPass::value_gradient);
  } else {
    key_pass(AttentionPass::key_value_gradient);
  }
}

/// Gradients of a bias and of a table's diagonals, where they are wanted; `asked` as
/// launch_single has it.
void launch_scores(const Problem& p, const SparseAttentionGradients& gradients, Backward arguments,
                   Stream stream, const int* asked) {
  static auto* const family = new jit::KernelFamily<AttentionScoreKernel>;
  const auto launch = [&](bool diagonals, int64_t warps, int64_t length) {
    const AttentionScoreKernel k{diagonals, p.dtype, padded_dim(p), p.rules, asked != nullptr};
    const jit::Kernel& kernel =
        family->get(k, stream.device(), [&] { return attention_score_source(k); });
    launch_single("sparse_attention_backward", kernel, warps, arguments, length, stream, asked);
  };
  if (const Tensor& dbias = gradients.dbias; dbias.defined()) {
    arguments.dbias = heads_of<void>(dbias);
    arguments.bias_batches = static_cast<int>(dbias.size(0));
    arguments.bias_heads = static_cast<int>(dbias.size(1));
    launch(false, dbias.size(0) * dbias.size(1) * dbias.size(2), dbias.size(2));
  }
  if (const Tensor& sums = gradients.drelative_bias; sums.defined()) {
    arguments.diagonals = sums.data();
    arguments.table_heads = static_cast<int>(sums.size(0));
    launch(true, sums.numel(), sums.size(1));
  }
}

}  // namespace

/// Rows move in vectors of 8 elements, and the padded head_dim of a tile is at most 256.
bool takes_head_dim(int64_t head_dim) { return head_dim % 8 == 0 && head_dim <= 256; }

void sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                      const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                      Stream stream) {
  check_floating("sparse_attention", q.dtype());
  const Tensor queries = aligned(q), keys = aligned(k), values = aligned(v);
  // As in the backward: values that are hidden inside a tile are multiplied by zero. And scores may
  // leap too far for a lazy kernel. Where a result is not finite, the portable kernel computes all
  // anew.
  Tensor said;
  const Problem p = problem_of(q, k, v, layout, options);
  const AttentionWarpgroups warpgroups(p.rules, q, k, v, layout, options, stream);
  if (warpgroups.run()) {
    const AttentionGrid grid = warpgroups.grid(q, k, layout);
    const WarpgroupForward kernel =
        warpgroup_forward_for(queries, keys, values, grid.layout, out, warpgroups.traits());
    if (kernel.dim > 0)
      said =
          launch_warpgroup_forward(kernel, queries, keys, values, grid, out, lse, options, stream);
    const bool sure = !warpgroups.hides(layout.block(), kernel.cols, options) &&
                      !device::attention_is_lazy(kernel.rules);
    if (said.defined() && sure) return;
  }
  const Forward arguments{.problem = p.shape,
                          .scores = p.scores,
                          .rows = rows_of(layout.view(q.device())),
                          .q = heads_of<const void>(queries),
                          .k = heads_of<const void>(keys),
                          .v = heads_of<const void>(values),
                          .out = heads_of<void>(out),
                          .lse = lse.data()};
  launch_pass("sparse_attention", AttentionPass::forward, p, p.longest_queries, q.size(1),
              arguments, stream, said.defined() ? said.data<int32_t>() : nullptr);
}

void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SparseAttentionResult& forward, const Tensor& dout,
                               const Layout& layout, const SparseAttentionGradients& gradients,
                               const SparseAttentionOptions& options, Stream stream) {
  check_floating("sparse_attention_backward", q.dtype());
  const Tensor queries = aligned(q), keys = aligned(k), values = aligned(v), douts = aligned(dout);
  const Tensor log_sums = Tensor::empty_like(forward.lse);
  const Tensor means = Tensor::empty_like(forward.lse);
  const LayoutView view = layout.view(q.device());
  const Problem p = problem_of(q, k, v, layout, options);
  const Backward arguments{.problem = p.shape,
                           .scores = p.scores,
                           .rows = rows_of(view),
                           .columns = columns_of(view),
                           .q = heads_of<const void>(queries),
                           .k = heads_of<const void>(keys),
                           .v = heads_of<const void>(values),
                           .out = heads_of<const void>(forward.out),
                           .dout = heads_of<const void>(douts),
                           .dq = heads_of<void>(gradients.dq),
                           .dk = heads_of<void>(gradients.dk),
                           .dv = heads_of<void>(gradients.dv),
                           .lse = forward.lse.data(),
                           .log_sums = log_sums.data(),
                           .means = means.data(),
                           .height = static_cast<int>(layout.height())};
  // The kernels on wgmma multiply what is hidden in a tile by zero. So they say whether anything
  // that they met is not finite, and then the portable kernels compute it all anew.
  const AttentionWarpgroups warpgroups(p.rules, q, k, v, layout, options, stream);
  const Tensor said =
      warpgroups.run() ? sparse_attention_warpgroup_backward(
                             queries, keys, values, forward, douts, warpgroups.grid(q, k, layout),
                             gradients, log_sums, means, options, warpgroups.traits(), stream)
                       : Tensor();
  const int* const asked = said.defined() ? said.data<int32_t>() : nullptr;
  const bool hides = warpgroups.hides(layout.block(), 64, options);
  if (!asked || hides)
    launch_backward(p, q.size(0) * q.size(1) * q.size(2), arguments, stream, asked);
  const bool summed = asked && stores_added_scores(options);
  if (!summed || hides) launch_scores(p, gradients, arguments, stream, summed ? asked : nullptr);
}

}  // namespace bs::cuda
