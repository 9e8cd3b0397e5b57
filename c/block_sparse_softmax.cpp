#include <bs/kernels/block_sparse_softmax.h>

#include <bs/c/handle.h>

using namespace bs::c;

bs_status bs_block_sparse_softmax(const bs_tensor* values, const bs_layout* layout, double scale,
                                  int causal, const bs_tensor* key_padding_mask, bs_tensor** y) {
  return guarded([&] {
    const char* op = "bs_block_sparse_softmax";
    place(op, y);
    const bs::SparseTensor s{value(op, "layout", layout), value(op, "values", values)};
    auto made = handle(bs::block_sparse_softmax(s, {.scale = scale,
                                                    .causal = causal != 0,
                                                    .key_padding_mask = optional(key_padding_mask)})
                           .values);
    give(y, made);
  });
}

bs_status bs_block_sparse_softmax_backward(const bs_tensor* y, const bs_layout* layout,
                                           double scale, const bs_tensor* dy, bs_tensor** dvalues) {
  return guarded([&] {
    const char* op = "bs_block_sparse_softmax_backward";
    place(op, dvalues);
    const bs::SparseTensor s{value(op, "layout", layout), value(op, "y", y)};
    auto made = handle(bs::block_sparse_softmax_backward(s, value(op, "dy", dy), scale));
    give(dvalues, made);
  });
}
