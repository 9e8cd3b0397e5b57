#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/attention/decode_attention.h>
#include <bs/kernels/cuda/attention/sparse_attention_call.h>
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

using Backward = device::AttentionBackwardArguments<void, void>;

/// Kernels can be emitted for these alone.
void check_floating(const char* op, DType dtype) {
  visit_floating(op, dtype, [](auto) {});
}

device::BlockLines columns_of(const LayoutView& v) {
  return {v.col_offsets, v.transposed_row, v.heads, v.cols};
}

int padded_dim(const AttentionCall& p) {
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

/// A CTA for every tile of rows of `heads` heads of each sequence, of `length` rows at most, or few
/// that go through them. Where `asked` points at a word, they do nothing if that is 0.
template <class Arguments>
void launch_pass(const char* op, AttentionPass pass, const AttentionCall& p, int64_t length,
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
  const bool few = has_few_ctas(k);
  // The forward would take .3 to 1 % longer.
  const bool early = k.asked && pass != AttentionPass::forward;
  const int at_once = tile.ctas * device_properties(stream.device()).multiprocessors;
  const jit::LaunchShape shape{
      .grid = dim3(few ? std::min(ctas, static_cast<unsigned>(at_once)) : ctas),
      .block = dim3(sparse_attention_threads),
      .shared_bytes = sparse_attention_shared_bytes(pass, size, k.dim, tile),
      .programmatic = early};
  if (few)
    jit::launch(kernel, shape, stream, arguments, asked, ctas);
  else if (asked)
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
void launch_backward(const AttentionCall& p, int64_t numbers, const Backward& arguments,
                     Stream stream, const int* asked) {
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
void launch_scores(const AttentionCall& p, const SparseAttentionGradients& gradients,
                   Backward arguments, Stream stream, const int* asked) {
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
const char* refused_head_dim(int64_t head_dim) {
  return head_dim % 8 == 0 && head_dim <= 256 ? nullptr : "a multiple of 8 up to 256";
}

void sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                      const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                      Stream stream) {
  check_floating("sparse_attention", q.dtype());
  const Tensor queries = aligned_heads(q), keys = aligned_heads(k), values = aligned_heads(v);
  // As in the backward: values that are hidden inside a tile are multiplied by zero. And scores may
  // leap too far for a lazy kernel. Where a result is not finite, the portable kernel computes all
  // anew.
  Tensor said;
  const AttentionCall p = attention_call(q, k, v, layout, options);
  if (const DecodeKernel kernel = decode_kernel_for(p, q.device()); kernel.dim > 0) {
    launch_decode(kernel, p, queries, {keys, values}, layout, {out, lse}, stream);
    return;
  }
  const AttentionWarpgroups warpgroups(p.rules, q, k, v, layout, options, stream);
  if (warpgroups.run()) {
    const AttentionGrid grid = warpgroups.grid(q, k, layout);
    const WarpgroupForward kernel =
        warpgroup_forward_for(queries, keys, values, grid.layout, out, warpgroups.traits());
    if (kernel.dim > 0)
      said = launch_warpgroup_forward(kernel, queries, keys, values, grid, {out, lse}, options,
                                      stream);
    const bool sure = !warpgroups.hides(layout.block(), kernel.cols, options) &&
                      !device::attention_is_lazy(kernel.rules);
    if (said.defined() && sure) return;
  }
  const auto arguments = forward_arguments(p, queries, keys, values, layout, {out, lse});
  launch_pass("sparse_attention", AttentionPass::forward, p, p.longest_queries, q.size(1),
              arguments, stream, said.defined() ? said.data<int32_t>() : nullptr);
}

void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SparseAttentionResult& forward, const Tensor& dout,
                               const Layout& layout, const SparseAttentionGradients& gradients,
                               const SparseAttentionOptions& options, Stream stream) {
  check_floating("sparse_attention_backward", q.dtype());
  const Tensor queries = aligned_heads(q), keys = aligned_heads(k), values = aligned_heads(v),
               douts = aligned_heads(dout);
  const SparseAttentionResult saved{aligned_heads(forward.out), forward.lse};
  const Tensor log_sums = Tensor::empty_like(forward.lse);
  const Tensor means = Tensor::empty_like(forward.lse);
  const LayoutView view = layout.view(q.device());
  const AttentionCall p = attention_call(q, k, v, layout, options);
  const Backward arguments{.problem = p.shape,
                           .scores = p.scores,
                           .rows = rows_of(view),
                           .columns = columns_of(view),
                           .q = heads_of<const void>(queries),
                           .k = heads_of<const void>(keys),
                           .v = heads_of<const void>(values),
                           .out = heads_of<const void>(saved.out),
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
  const Tensor said = warpgroups.run()
                          ? sparse_attention_warpgroup_backward(
                                {queries, keys, values, saved, douts, warpgroups.grid(q, k, layout),
                                 gradients, log_sums, means, options, warpgroups.traits(), stream})
                          : Tensor();
  const int* const asked = said.defined() ? said.data<int32_t>() : nullptr;
  const bool hides = warpgroups.hides(layout.block(), 64, options);
  if (!asked || hides)
    launch_backward(p, q.size(0) * q.size(1) * q.size(2), arguments, stream, asked);
  const bool summed = asked && stores_added_scores(options);
  if (!summed || hides) launch_scores(p, gradients, arguments, stream, summed ? asked : nullptr);
}

}  // namespace bs::cuda
