#include <bs/autograd/sparse_attention.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable sparse_attention(const Variable& q, const Variable& k, const Variable& v,
                          const LayoutPtr& layout, const SparseAttentionOptions& options) {
  SparseAttentionResult forward = sparse_attention(q.data(), k.data(), v.data(), layout, options);
  return tape().record(
      "sparse_attention", {q, k, v}, forward.out,
      [q = q.data(), k = k.data(), v = v.data(), forward, layout, options](const Tensor& dout) {
        auto [dq, dk, dv] = sparse_attention_backward(q, k, v, forward, dout, layout, options);
        return Grads{std::move(dq), std::move(dk), std::move(dv)};
      });
}

Variable sparse_attention_qkv(const Variable& qkv, int heads, const LayoutPtr& layout,
                              const SparseAttentionOptions& options) {
  SparseAttentionResult forward = sparse_attention_qkv(qkv.data(), heads, layout, options);
  return tape().record(
      "sparse_attention_qkv", {qkv}, forward.out,
      [qkv = qkv.data(), heads, forward, layout, options](const Tensor& dout) {
        return Grads{sparse_attention_qkv_backward(qkv, heads, forward, dout, layout, options)};
      });
}

}  // namespace bs
