#include <bs/autograd/sparse_attention.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {
void place(const char* name, const Variable& learnt, Tensor& option) {
  if (!learnt.defined()) return;
  BS_CHECK(!option.defined(), "sparse_attention: {} is given twice", name);
  option = learnt.data();
}
}  // namespace

Variable sparse_attention(const Variable& q, const Variable& k, const Variable& v,
                          const LayoutPtr& layout, const SparseAttentionOptions& given,
                          const SparseAttentionVariables& learnt) {
  SparseAttentionOptions options = given;
  place("bias", learnt.bias, options.bias);
  place("relative_bias", learnt.relative_bias, options.relative_bias);
  place("sinks", learnt.sinks, options.sinks);
  const SparseAttentionWanted wanted{.bias = learnt.bias.requires_grad(),
                                     .relative_bias = learnt.relative_bias.requires_grad(),
                                     .sinks = learnt.sinks.requires_grad()};
  SparseAttentionResult forward = sparse_attention(q.data(), k.data(), v.data(), layout, options);
  return tape().record(
      "sparse_attention", {q, k, v, learnt.bias, learnt.relative_bias, learnt.sinks}, forward.out,
      [q = SavedTensor(q.data()), k = SavedTensor(k.data()), v = SavedTensor(v.data()), forward,
       layout, options, wanted](const Tensor& dout) {
        const SparseAttentionGradients g =
            sparse_attention_backward(q, k, v, forward, dout, layout, options, wanted);
        return Grads{g.dq, g.dk, g.dv, g.dbias, g.drelative_bias, g.dsinks};
      });
}

Variable sparse_attention_qkv(const Variable& qkv, int heads, const LayoutPtr& layout,
                              const SparseAttentionOptions& options) {
  SparseAttentionResult forward = sparse_attention_qkv(qkv.data(), heads, layout, options);
  return tape().record(
      "sparse_attention_qkv", {qkv}, forward.out,
      [qkv = SavedTensor(qkv.data()), heads, forward, layout, options](const Tensor& dout) {
        return Grads{sparse_attention_qkv_backward(qkv, heads, forward, dout, layout, options)};
      });
}

}  // namespace bs
