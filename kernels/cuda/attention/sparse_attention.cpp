#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/attention/sparse_attention_kernels.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup_backward.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/cuda/launch.h>
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

/// For operands: device::AttentionRows<const void>; for results: <void>.
template <class Void>
device::AttentionRows<Void> heads_of(const Tensor& x) {
  return {x.data(), x.strides()[0], x.strides()[1], x.strides()[2]};
}

device::AttentionProblem problem_of(const Tensor& q, const Tensor& k, const Layout& layout,
                                    const SparseAttentionOptions& options) {
  // The kernels number pieces of blocks in 24 bits, and elements in 31.
  const int64_t pieces = std::max(layout.height(), layout.width()) / std::min(layout.block(), 16);
  BS_CHECK(pieces < 1 << 24 && std::max(layout.height(), layout.width()) <= INT32_MAX,
           "sparse_attention: {} queries and {} keys are more than the CUDA kernels can number",
           layout.height(), layout.width());
  const Tensor& mask = options.key_padding_mask;
  return {.heads = static_cast<int>(q.size(1)),
          .group = static_cast<int>(q.size(1) / k.size(1)),
          .queries = static_cast<int>(q.size(2)),
          .keys = static_cast<int>(k.size(2)),
          .head_dim = static_cast<int>(q.size(3)),
          .block = layout.block(),
          .layout_heads = layout.heads(),
          .causal = options.causal,
          .scale = options.scale,
          .seen = mask.defined() ? static_cast<const unsigned char*>(mask.data()) : nullptr};
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

/// A CTA for every tile of `length` rows of `heads` heads; where `asked` points at a word, they do
/// nothing unless it says so.
template <class Arguments>
void launch_pass(const char* op, AttentionPass pass, DType dtype, int64_t length, int64_t heads,
                 const Arguments& arguments, const int* asked, Stream stream) {
  static auto* const family = new jit::KernelFamily<AttentionKernel>;
  const int size = static_cast<int>(size_of(dtype));
  const int64_t ctas = ceil_div(length, sparse_attention_rows(size)) * heads;
  if (ctas == 0) return;
  BS_CHECK(ctas <= INT32_MAX, "{}: {} tiles are more than one launch can have", op, ctas);
  const AttentionKernel k{.pass = pass,
                          .dtype = dtype,
                          .dim = sparse_attention_dim(size, arguments.problem.head_dim),
                          .whole = sparse_attention_whole(size, arguments.problem.block),
                          .asked = asked != nullptr};
  const jit::Kernel& kernel = family->get(k, stream.device(), [&] { return attention_source(k); });
  const jit::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(ctas)),
      .block = dim3(sparse_attention_threads),
      .shared_bytes = sparse_attention_shared_bytes(pass, size, k.dim, tile_of(k).cols)};
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
  BS_CHECK(ctas <= INT32_MAX,
           "sparse_attention_backward: {} queries are more than one launch can "
           "have",
           rows);
  jit::launch(kernel, {.grid = dim3(static_cast<unsigned>(ctas)), .block = dim3(threads)}, stream,
              arguments, static_cast<long long>(rows));
}

}  // namespace

void sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                      const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                      Stream stream) {
  check_floating("sparse_attention", q.dtype());
  const Tensor queries = aligned(q), keys = aligned(k), values = aligned(v);
  const Forward arguments{.problem = problem_of(q, k, layout, options),
                          .rows = rows_of(layout.view(q.device())),
                          .q = heads_of<const void>(queries),
                          .k = heads_of<const void>(keys),
                          .v = heads_of<const void>(values),
                          .out = heads_of<void>(out),
                          .lse = lse.data()};
  launch_pass("sparse_attention", AttentionPass::forward, q.dtype(), q.size(2),
              q.size(0) * q.size(1), arguments, nullptr, stream);
}

void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SparseAttentionResult& forward, const Tensor& dout,
                               const Layout& layout, const SparseAttentionGradients& gradients,
                               const SparseAttentionOptions& options, Stream stream) {
  constexpr const char* op = "sparse_attention_backward";
  check_floating(op, q.dtype());
  const Tensor queries = aligned(q), keys = aligned(k), values = aligned(v), douts = aligned(dout);
  const Tensor log_sums = Tensor::empty_like(forward.lse);
  const Tensor means = Tensor::empty_like(forward.lse);
  const LayoutView view = layout.view(q.device());
  const Backward arguments{.problem = problem_of(q, k, layout, options),
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
                           .means = means.data()};
  // The kernels on wgmma multiply what is hidden by zero. So they say whether anything that they
  // met is not finite, and then the portable kernels compute it all anew.
  const Tensor asked = sparse_attention_warpgroup_backward(
      queries, keys, values, forward, douts, layout, gradients, log_sums, means, options, stream);
  const int* const word = asked.defined() ? asked.data<int32_t>() : nullptr;
  if (!word) launch_numbers(q.dtype(), q.size(0) * q.size(1) * q.size(2), arguments, stream);
  launch_pass(op, AttentionPass::query_gradient, q.dtype(), q.size(2), q.size(0) * q.size(1),
              arguments, word, stream);
  launch_pass(op, AttentionPass::key_gradient, q.dtype(), k.size(2), k.size(0) * k.size(1),
              arguments, word, stream);
}

}  // namespace bs::cuda
