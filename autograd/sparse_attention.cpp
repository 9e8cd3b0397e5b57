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

/// What backward reads besides lse, which nobody else has: a change of it is then an Error.
SavedInputs saved(std::vector<Variable> inputs, const Tensor& out,
                  const SparseAttentionOptions& options) {
  for (const Tensor& read :
       {out, options.key_padding_mask, options.mask, options.packed_mask.numbers(),
        options.packed_mask.bits(), options.bias, options.relative_bias, options.alibi_slopes,
        options.sinks})
    if (read.defined()) inputs.emplace_back(read);
  return SavedInputs(inputs);
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
      [q = q.data(), k = k.data(), v = v.data(), saved = saved({q, k, v}, forward.out, options),
       forward, layout, options, wanted](const Tensor& dout) {
        saved.check();
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
      [qkv = qkv.data(), saved = saved({qkv}, forward.out, options), heads, forward, layout,
       options](const Tensor& dout) {
        saved.check();
        return Grads{sparse_attention_qkv_backward(qkv, heads, forward, dout, layout, options)};
      });
}

}  // namespace bs
