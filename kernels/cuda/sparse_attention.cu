#include <bs/kernels/copy.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/sparse_attention_backward.cuh>

namespace bs::cuda {

namespace launch {
// Instantiated in sparse_attention_<dtype>.cu.
template <class T>
void sparse_attention(const device::AttentionForward<T>& a, int64_t batch, cudaStream_t stream);
template <class T>
void sparse_attention_backward(const device::AttentionBackward<T>& a, int64_t batch,
                               cudaStream_t stream);
}  // namespace launch

namespace {

/// `x` itself where its rows begin at multiples of 16 bytes, else a dense copy.
Tensor aligned(const Tensor& x) {
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  bool fits = reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
  for (int axis = 0; axis < 3; ++axis)
    fits = fits && (x.size(axis) == 1 || x.strides()[axis] * size % 16 == 0);
  return fits ? x : clone(x);
}

template <class T>
device::AttentionRows<device_type<T>> rows_of(const Tensor& x) {
  return {pointer<T>(x), x.strides()[0], x.strides()[1], x.strides()[2]};
}

template <class T>
device::AttentionRows<const device_type<T>> const_rows_of(const Tensor& x) {
  return {pointer<T>(x), x.strides()[0], x.strides()[1], x.strides()[2]};
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

device::BlockLines rows_of(const LayoutView& v) {
  return {v.row_offsets, v.col_of, v.heads, v.rows};
}

device::BlockLines columns_of(const LayoutView& v) {
  return {v.col_offsets, v.transposed_row, v.heads, v.cols};
}

}  // namespace

void sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                      const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                      Stream stream) {
  const Tensor queries = aligned(q), keys = aligned(k), values = aligned(v);
  visit_floating("sparse_attention", q.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using Sum = device::wide<D>;
    launch::sparse_attention<D>({.problem = problem_of(q, k, layout, options),
                                 .rows = rows_of(layout.view(q.device())),
                                 .q = const_rows_of<T>(queries),
                                 .k = const_rows_of<T>(keys),
                                 .v = const_rows_of<T>(values),
                                 .out = rows_of<T>(out),
                                 .lse = lse.data<Sum>()},
                                q.size(0), native(stream));
  });
}

void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SparseAttentionResult& forward, const Tensor& dout,
                               const Layout& layout, const SparseAttentionGradients& gradients,
                               const SparseAttentionOptions& options, Stream stream) {
  const Tensor queries = aligned(q), keys = aligned(k), values = aligned(v), douts = aligned(dout);
  const Tensor log_sums = Tensor::empty_like(forward.lse);
  const Tensor means = Tensor::empty_like(forward.lse);
  visit_floating("sparse_attention_backward", q.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using Sum = device::wide<D>;
    const LayoutView view = layout.view(q.device());
    launch::sparse_attention_backward<D>({.problem = problem_of(q, k, layout, options),
                                          .rows = rows_of(view),
                                          .columns = columns_of(view),
                                          .q = const_rows_of<T>(queries),
                                          .k = const_rows_of<T>(keys),
                                          .v = const_rows_of<T>(values),
                                          .out = const_rows_of<T>(forward.out),
                                          .dout = const_rows_of<T>(douts),
                                          .dq = rows_of<T>(gradients.dq),
                                          .dk = rows_of<T>(gradients.dk),
                                          .dv = rows_of<T>(gradients.dv),
                                          .lse = forward.lse.data<Sum>(),
                                          .log_sums = log_sums.data<Sum>(),
                                          .means = means.data<Sum>()},
                                         q.size(0), native(stream));
  });
}

}  // namespace bs::cuda
