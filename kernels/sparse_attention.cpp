#include <bs/kernels/sparse_attention.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/sparse_attention_check.h>
#include <bs/kernels/unary.h>
#include <bs/kernels/where.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bs {

using detail::attention_sums;
using detail::check_attention;
using detail::check_attention_forward;
using detail::dense_attention_rows;
using detail::empty_attention_heads;
using detail::empty_attention_result;
using detail::resolved_attention;

namespace {

/// Products of the kept blocks' elements: so many over the depth of queries, and of values.
Work work_of(const Tensor& q, const Tensor& v, const Layout& layout, int64_t of_queries,
             int64_t of_values) {
  const auto kept = static_cast<double>(layout.nnz()) * layout.block() * layout.block();
  const int64_t matrices = q.size(0) * (layout.heads() == 1 ? q.size(1) : 1);
  const int64_t depth = of_queries * q.size(3) + of_values * v.size(3);
  return {.flops = 2 * kept * static_cast<double>(matrices) * static_cast<double>(depth),
          .density = layout.density()};
}

/// [batch, sequence, heads * head_dim] as [batch, heads, sequence, head_dim]; never a copy.
Tensor split_heads(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).permute({0, 2, 1, 3});
}

/// The three parts of a packed projection, or of its gradient.
SparseAttentionGradients split_qkv(const Tensor& qkv, int64_t heads) {
  const int64_t width = qkv.size(2) / 3;
  const auto part = [&](int64_t i) {
    return split_heads(qkv.slice(2, i * width, (i + 1) * width), heads);
  };
  return {.dq = part(0), .dk = part(1), .dv = part(2)};
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
  const SparseAttentionResult saved{dense_attention_rows(forward.out), contiguous(forward.lse)};
  BS_DISPATCH_WORK(q.device(), work_of(q, v, layout, 3, 2), sparse_attention_backward,
                   dense_attention_rows(q), dense_attention_rows(k), dense_attention_rows(v), saved,
                   dense_attention_rows(dout), layout, gradients,
                   resolved_attention(options, q, k));
}

/// A sink has no value: its ds_i is -p_i (dout_i . out_i).
Tensor sink_gradient(const SparseAttentionResult& forward, const Tensor& dout,
                     const Tensor& sinks) {
  const DType sums = forward.lse.dtype();
  const Tensor means = sum(mul(cast(forward.out, sums), cast(dout, sums)), Dims{3});
  const Tensor logits = cast(sinks, sums).view({1, -1, 1});
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor weights = where(eq(forward.lse, none), 0.0, exp(sub(logits, forward.lse)));
  return cast(neg(sum(mul(weights, means), Dims{0, 2})), sinks.dtype());
}

/// Sums over diagonals, brought together where the table's ends take many of them.
Tensor table_gradient(const Tensor& diagonals, const Tensor& table, const Layout& layout,
                      const SparseAttentionOptions& options) {
  const int64_t reach = table.size(1) / 2, count = diagonals.size(1);
  // Diagonal number z has the distance z - zero.
  const int64_t zero = layout.height() - 1 + options.first_query.value_or(0) + options.offset;
  const int64_t low = std::clamp<int64_t>(zero - reach + 1, 0, count);
  const int64_t high = std::clamp<int64_t>(zero + reach, low, count);
  Tensor gradient = zeros(table.shape(), diagonals.dtype(), diagonals.device());
  if (reach == 0) {
    copy(sum(diagonals, Dims{1}, true), gradient);
    return cast(gradient, table.dtype());
  }
  copy(sum(diagonals.slice(1, 0, low), Dims{1}, true), gradient.slice(1, 0, 1));
  copy(sum(diagonals.slice(1, high, count), Dims{1}, true),
       gradient.slice(1, 2 * reach, 2 * reach + 1));
  if (low < high)
    copy(diagonals.slice(1, low, high), gradient.slice(1, low - zero + reach, high - zero + reach));
  return cast(gradient, table.dtype());
}

}  // namespace

SparseAttentionResult sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const LayoutPtr& layout,
                                       const SparseAttentionOptions& options) {
  check_attention("sparse_attention", q, k, v, layout, options);
  SparseAttentionResult result = empty_attention_result(q, v);
  if (q.numel() > 0)
    BS_DISPATCH_WORK(q.device(), work_of(q, v, *layout, 1, 1), sparse_attention,
                     dense_attention_rows(q), dense_attention_rows(k), dense_attention_rows(v),
                     *layout, result.out, result.lse, resolved_attention(options, q, k));
  return result;
}

SparseAttentionGradients sparse_attention_backward(const Tensor& q, const Tensor& k,
                                                   const Tensor& v,
                                                   const SparseAttentionResult& forward,
                                                   const Tensor& dout, const LayoutPtr& layout,
                                                   const SparseAttentionOptions& options,
                                                   const SparseAttentionWanted& wanted) {
  constexpr const char* op = "sparse_attention_backward";
  check_attention(op, q, k, v, layout, options);
  check_attention_forward(op, q, v, forward, dout);
  const auto check_wanted = [&](const char* name, bool asked, const Tensor& x) {
    BS_CHECK(!asked || x.defined(), "{}: the gradient of {}, which is not given", op, name);
  };
  check_wanted("bias", wanted.bias, options.bias);
  check_wanted("relative_bias", wanted.relative_bias, options.relative_bias);
  check_wanted("sinks", wanted.sinks, options.sinks);
  SparseAttentionGradients gradients{.dq = empty_attention_heads(q, q.size(3)),
                                     .dk = empty_attention_heads(k, k.size(3)),
                                     .dv = empty_attention_heads(v, v.size(3))};
  if (wanted.bias) gradients.dbias = zeros(options.bias.shape(), attention_sums(q), q.device());
  if (wanted.relative_bias) {
    const int64_t diagonals = std::max<int64_t>(0, layout->height() + layout->width() - 1);
    gradients.drelative_bias =
        zeros({options.relative_bias.size(0), diagonals}, attention_sums(q), q.device());
  }
  run_backward(q, k, v, forward, dout, *layout, gradients, options);
  if (wanted.bias) gradients.dbias = cast(gradients.dbias, options.bias.dtype());
  if (wanted.relative_bias)
    gradients.drelative_bias =
        table_gradient(gradients.drelative_bias, options.relative_bias, *layout, options);
  if (wanted.sinks) gradients.dsinks = sink_gradient(forward, dout, options.sinks);
  return gradients;
}

SparseAttentionResult sparse_attention_qkv(const Tensor& qkv, int heads, const LayoutPtr& layout,
                                           const SparseAttentionOptions& options) {
  check_qkv("sparse_attention_qkv", qkv, heads);
  const SparseAttentionGradients packed = split_qkv(qkv, heads);
  const Tensor &q = packed.dq, &k = packed.dk, &v = packed.dv;
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
  const SparseAttentionGradients packed = split_qkv(qkv, heads);
  const Tensor &q = packed.dq, &k = packed.dk, &v = packed.dv;
  const SparseAttentionResult parts{split_heads(contiguous(forward.out), heads), forward.lse};
  const Tensor douts = split_heads(contiguous(dout), heads);
  check_attention(op, q, k, v, layout, options);
  check_attention_forward(op, q, v, parts, douts);
  Tensor gradient = Tensor::empty(qkv.shape(), qkv.dtype(), qkv.device());
  run_backward(q, k, v, parts, douts, *layout, split_qkv(gradient, heads), options);
  return gradient;
}

}  // namespace bs
