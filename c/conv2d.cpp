#include <bs/kernels/conv2d.h>

#include <bs/c/conv2d_options.h>
#include <bs/c/handle.h>
#include <bs/kernels/reduce.h>

using namespace bs::c;

bs_status bs_conv2d(const bs_tensor* x, const bs_tensor* weight, const bs_tensor* bias,
                    const bs_conv2d_options* options, bs_tensor** y) {
  return guarded([&] {
    const char* op = "bs_conv2d";
    place(op, y);
    auto made = handle(bs::conv2d(value(op, "x", x), value(op, "weight", weight),
                                  conv2d_options(options), {.bias = optional(bias)}));
    give(y, made);
  });
}

bs_status bs_conv2d_backward(const bs_tensor* x, const bs_tensor* weight,
                             const bs_conv2d_options* options, const bs_tensor* dy, bs_tensor** dx,
                             bs_tensor** dweight, bs_tensor** dbias) {
  return guarded([&] {
    const char* op = "bs_conv2d_backward";
    clear(dx, dweight, dbias);
    const bs::Tensor &in = value(op, "x", x), &w = value(op, "weight", weight);
    const bs::Tensor& d = value(op, "dy", dy);
    const bs::Conv2dOptions o = conv2d_options(options);
    auto to_x = wanted(dx, [&] { return bs::conv2d_backward_x(d, w, in.shape(), o); });
    auto to_w = wanted(dweight, [&] { return bs::conv2d_backward_w(in, d, w.shape(), o); });
    auto to_bias = wanted(dbias, [&] { return bs::sum(d, bs::Dims{0, 2, 3}); });
    give(dx, to_x);
    give(dweight, to_w);
    give(dbias, to_bias);
  });
}
