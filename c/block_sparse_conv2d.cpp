#include <bs/kernels/block_sparse_conv2d.h>

#include <bs/c/conv2d_options.h>
#include <bs/c/handle.h>
#include <bs/kernels/reduce.h>

namespace bs::c {

namespace {

struct Weight {
  SparseTensor blocks;
  Extent2 kernel;
};

Weight weight_of(const char* op, const bs_conv2d_blocks* weight) {
  BS_CHECK(weight != nullptr, "{}: weight is NULL", op);
  return {{value(op, "layout", weight->layout), value(op, "values", weight->values)},
          {weight->r, weight->s}};
}

}  // namespace

}  // namespace bs::c

using namespace bs::c;

bs_status bs_conv2d_layout(const bs_tensor* mask, int block, bs_layout** out) {
  return guarded([&] {
    place("bs_conv2d_layout", out);
    *out = new bs_layout{bs::conv2d_layout(value("bs_conv2d_layout", "mask", mask), block)};
  });
}

bs_status bs_block_sparse_conv2d(const bs_tensor* x, const bs_conv2d_blocks* weight,
                                 const bs_tensor* bias, const bs_conv2d_options* options,
                                 bs_tensor** y) {
  return guarded([&] {
    const char* op = "bs_block_sparse_conv2d";
    place(op, y);
    const Weight w = weight_of(op, weight);
    auto made = handle(bs::block_sparse_conv2d(value(op, "x", x), w.blocks, w.kernel,
                                               conv2d_options(options), optional(bias)));
    give(y, made);
  });
}

bs_status bs_block_sparse_conv2d_backward(const bs_tensor* x, const bs_conv2d_blocks* weight,
                                          const bs_conv2d_options* options, const bs_tensor* dy,
                                          bs_tensor** dx, bs_tensor** dvalues, bs_tensor** dbias) {
  return guarded([&] {
    const char* op = "bs_block_sparse_conv2d_backward";
    clear(dx, dvalues, dbias);
    const Weight w = weight_of(op, weight);
    const bs::Tensor &in = value(op, "x", x), &d = value(op, "dy", dy);
    const bs::Conv2dOptions o = conv2d_options(options);
    auto to_x = wanted(dx, [&] {
      return bs::block_sparse_conv2d_backward_x(d, w.blocks, w.kernel, in.shape(), o);
    });
    auto to_w = wanted(dvalues, [&] {
      return bs::block_sparse_conv2d_backward_w(in, d, w.blocks.layout, w.kernel, o);
    });
    auto to_bias = wanted(dbias, [&] { return bs::sum(d, bs::Dims{0, 2, 3}); });
    give(dx, to_x);
    give(dvalues, to_w);
    give(dbias, to_bias);
  });
}
