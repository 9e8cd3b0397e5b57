#include <bs/kernels/sparse_attention.h>

#include <bs/c/handle.h>

struct bs_attention {
  bs::Tensor q, k, v;
  bs::LayoutPtr layout;
  bs::SparseAttentionOptions options;
  bs::SparseAttentionResult result;
};

using namespace bs::c;

bs_status bs_sparse_attention(const bs_tensor* q, const bs_tensor* k, const bs_tensor* v,
                              const bs_layout* layout, const bs_attention_options* options,
                              bs_tensor** out, bs_attention** saved) {
  return guarded([&] {
    const char* op = "bs_sparse_attention";
    place(op, out);
    clear(saved);
    bs::SparseAttentionOptions o;
    if (options) {
      o.scale = options->scale;
      o.causal = options->causal != 0;
      o.key_padding_mask = optional(options->key_padding_mask);
    }
    auto kept = std::make_unique<bs_attention>(bs_attention{value(op, "q", q),
                                                            value(op, "k", k),
                                                            value(op, "v", v),
                                                            value(op, "layout", layout),
                                                            std::move(o),
                                                            {}});
    kept->result = bs::sparse_attention(kept->q, kept->k, kept->v, kept->layout, kept->options);
    auto made = handle(kept->result.out);
    give(out, made);
    if (saved) *saved = kept.release();
  });
}

bs_status bs_sparse_attention_backward(const bs_attention* saved, const bs_tensor* dout,
                                       bs_tensor** dq, bs_tensor** dk, bs_tensor** dv) {
  return guarded([&] {
    const char* op = "bs_sparse_attention_backward";
    clear(dq, dk, dv);
    BS_CHECK(saved != nullptr, "{}: saved is NULL", op);
    const bs::SparseAttentionGradients g =
        bs::sparse_attention_backward(saved->q, saved->k, saved->v, saved->result,
                                      value(op, "dout", dout), saved->layout, saved->options);
    auto to_q = handle(g.dq), to_k = handle(g.dk), to_v = handle(g.dv);
    give(dq, to_q);
    give(dk, to_k);
    give(dv, to_v);
  });
}

void bs_attention_free(bs_attention* saved) { delete saved; }
