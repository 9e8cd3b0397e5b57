#include <bs/kernels/sparse_attention.h>

#include <bs/kernels/copy.h>

#include <cmath>

namespace bs {

namespace {

void check_mask(const char* op, const Tensor& q, const Tensor& k, const Tensor& mask) {
  BS_CHECK(mask.dtype() == boolean, "{}: key_padding_mask is {}, not bool", op, mask.dtype());
  check_same_device(op, q, mask);
  BS_CHECK(mask.shape() == Shape({k.size(0), k.size(2)}),
           "{}: key_padding_mask {} is not [batch, keys] of k {}", op, mask.shape(), k.shape());
}

void check_layout(const char* op, const Tensor& q, const Tensor& k, const Layout& layout) {
  BS_CHECK(layout.heads() == 1 || layout.heads() == q.size(1),
           "{}: a layout of {} heads for q {} of {} heads", op, layout.heads(), q.shape(),
           q.size(1));
  BS_CHECK(q.size(2) == layout.height() && k.size(2) == layout.width(),
           "{}: {} queries and {} keys do not fit a layout of {} x {} blocks of {}", op, q.size(2),
           k.size(2), layout.rows(), layout.cols(), layout.block());
}

void check_arguments(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayoutPtr& layout, const SparseAttentionOptions& options) {
  BS_CHECK(layout != nullptr, "{}: no layout", op);
  BS_CHECK(q.rank() == 4 && k.rank() == 4,
           "{}: q {} and k {} are not [batch, heads, sequence, head_dim]", op, q.shape(),
           k.shape());
  check_same_shape(op, k, v);
  for (const Tensor& other : {k, v}) {
    check_same_dtype(op, q, other);
    check_same_device(op, q, other);
  }
  BS_CHECK(q.size(0) == k.size(0), "{}: batch sizes differ: q {}, k {}", op, q.shape(), k.shape());
  BS_CHECK(q.size(3) == k.size(3), "{}: head_dims differ: q {}, k {}", op, q.shape(), k.shape());
  BS_CHECK(q.size(3) > 0, "{}: q {} has a head_dim of 0", op, q.shape());
  BS_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0,
           "{}: {} heads of k do not divide {} heads of q", op, k.size(1), q.size(1));
  BS_CHECK(q.device().is_cpu() || (q.size(3) % 8 == 0 && q.size(3) <= 128),
           "{}: head_dim {} on {} is no multiple of 8 up to 128", op, q.size(3), q.device());
  BS_CHECK(options.scale >= 0, "{}: scale {} is negative", op, options.scale);
  check_layout(op, q, k, *layout);
  if (options.key_padding_mask.defined()) check_mask(op, q, k, options.key_padding_mask);
}

void check_forward(const char* op, const Tensor& q, const SparseAttentionResult& forward,
                   const Tensor& dout) {
  check_same_shape(op, q, forward.out);
  for (const Tensor& other : {forward.out, dout}) {
    check_same_dtype(op, q, other);
    check_same_device(op, q, other);
  }
  check_same_shape(op, forward.out, dout);
  check_same_device(op, q, forward.lse);
  BS_CHECK(forward.lse.shape() == q.shape().slice(0, 3), "{}: lse {} for q {}", op,
           forward.lse.shape(), q.shape());
}

/// Options as the twins take them: the scale itself, the mask dense.
SparseAttentionOptions resolved(const SparseAttentionOptions& options, int64_t head_dim) {
  SparseAttentionOptions r = options;
  if (r.scale == 0) r.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  if (r.key_padding_mask.defined()) r.key_padding_mask = contiguous(r.key_padding_mask);
  return r;
}

Tensor dense_rows(const Tensor& x) {
  return x.strides().back() == 1 || x.size(-1) == 1 ? x : clone(x);
}

/// [batch, heads, sequence, head_dim] over memory [batch, sequence, heads, head_dim].
Tensor empty_heads(const Tensor& like) {
  const Shape& s = like.shape();
  return Tensor::empty({s[0], s[2], s[1], s[3]}, like.dtype(), like.device()).permute({0, 2, 1, 3});
}

/// [batch, sequence, heads * head_dim] as [batch, heads, sequence, head_dim]; never a copy.
Tensor split_heads(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).permute({0, 2, 1, 3});
}

/// The three parts of a packed projection.
SparseAttentionGradients split_qkv(const Tensor& qkv, int64_t heads) {
  const int64_t width = qkv.size(2) / 3;
  const auto part = [&](int64_t i) {
    return split_heads(qkv.slice(2, i * width, (i + 1) * width), heads);
  };
  return {part(0), part(1), part(2)};
}

void check_qkv(const char* op, const Tensor& qkv, int heads) {
  BS_CHECK(qkv.rank() == 3 && heads > 0 && qkv.size(2) % (3 * int64_t{heads}) == 0,
           "{}: qkv {} is not [batch, sequence, 3 * {} heads * head_dim]", op, qkv.shape(), heads);
}

void run_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                  const SparseAttentionResult& forward, const Tensor& dout, const Layout& layout,
                  const SparseAttentionGradients& gradients,
                  const SparseAttentionOptions& options) {
  if (q.numel() == 0 && k.numel() == 0) return;
  const SparseAttentionResult saved{dense_rows(forward.out), contiguous(forward.lse)};
  BS_DISPATCH(q.device(), sparse_attention_backward, dense_rows(q), dense_rows(k), dense_rows(v),
              saved, dense_rows(dout), layout, gradients, resolved(options, q.size(3)));
}

}  // namespace

SparseAttentionResult sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const LayoutPtr& layout,
                                       const SparseAttentionOptions& options) {
  check_arguments("sparse_attention", q, k, v, layout, options);
  SparseAttentionResult result{
      empty_heads(q),
      Tensor::empty(q.shape().slice(0, 3), q.dtype() == f64 ? f64 : f32, q.device())};
  if (q.numel() > 0)
    BS_DISPATCH(q.device(), sparse_attention, dense_rows(q), dense_rows(k), dense_rows(v), *layout,
                result.out, result.lse, resolved(options, q.size(3)));
  return result;
}

SparseAttentionGradients sparse_attention_backward(const Tensor& q, const Tensor& k,
                                                   const Tensor& v,
                                                   const SparseAttentionResult& forward,
                                                   const Tensor& dout, const LayoutPtr& layout,
                                                   const SparseAttentionOptions& options) {
  check_arguments("sparse_attention_backward", q, k, v, layout, options);
  check_forward("sparse_attention_backward", q, forward, dout);
  SparseAttentionGradients gradients{empty_heads(q), empty_heads(k), empty_heads(v)};
  run_backward(q, k, v, forward, dout, *layout, gradients, options);
  return gradients;
}

SparseAttentionResult sparse_attention_qkv(const Tensor& qkv, int heads, const LayoutPtr& layout,
                                           const SparseAttentionOptions& options) {
  check_qkv("sparse_attention_qkv", qkv, heads);
  const auto [q, k, v] = split_qkv(qkv, heads);
  SparseAttentionResult result = sparse_attention(q, k, v, layout, options);
  result.out = result.out.permute({0, 2, 1, 3}).flatten(2, 3);
  return result;
}

Tensor sparse_attention_qkv_backward(const Tensor& qkv, int heads,
                                     const SparseAttentionResult& forward, const Tensor& dout,
                                     const LayoutPtr& layout,
                                     const SparseAttentionOptions& options) {
  constexpr const char* op = "sparse_attention_qkv_backward";
  check_qkv(op, qkv, heads);
  const Shape out_shape{qkv.size(0), qkv.size(1), qkv.size(2) / 3};
  BS_CHECK(forward.out.shape() == out_shape && dout.shape() == out_shape,
           "{}: out {} and dout {} for qkv {}", op, forward.out.shape(), dout.shape(), qkv.shape());
  const auto [q, k, v] = split_qkv(qkv, heads);
  const SparseAttentionResult parts{split_heads(contiguous(forward.out), heads), forward.lse};
  const Tensor douts = split_heads(contiguous(dout), heads);
  check_arguments(op, q, k, v, layout, options);
  check_forward(op, q, parts, douts);
  Tensor gradient = Tensor::empty(qkv.shape(), qkv.dtype(), qkv.device());
  run_backward(q, k, v, parts, douts, *layout, split_qkv(gradient, heads), options);
  return gradient;
}

}  // namespace bs
