#include <bs/autograd/conv2d.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>

namespace bs {

namespace {

/// Channels-last or row-major as y is, so that element-wise work is one dense pass.
Tensor slope_of(Activation f, const Tensor& y, const Tensor& dy) {
  if (f == Activation::none) return dy;
  const bool last = is_channels_last(dy);
  const auto seen = [&](const Tensor& t) { return last ? t.permute({0, 2, 3, 1}) : t; };
  const Tensor a = seen(y), b = seen(dy);
  const Tensor e = f == Activation::relu   ? relu_backward(a, b)
                   : f == Activation::tanh ? tanh_backward(a, b)
                                           : sigmoid_backward(a, b);
  return last ? e.permute({0, 3, 1, 2}) : e;
}

Variable activated(Activation f, const Variable& z) {
  const bool last = is_channels_last(z.data());
  const Variable seen = last ? permute(z, {0, 2, 3, 1}) : z;
  const Variable y = activate(seen, f);
  return last ? permute(y, {0, 3, 1, 2}) : y;
}

/// The same, recorded.
Variable slope_of(Activation f, const Variable& y, const Variable& dy) {
  if (f == Activation::none) return dy;
  if (f == Activation::relu) return where(gt(y.data(), 0), dy, 0);
  return f == Activation::tanh ? dy * (1 - y * y) : dy * (y * (1 - y));
}

ProductForm form_of(const Shape& x, const Shape& weight, const Conv2dOptions& options) {
  return {
      .c = [=](const Tensor& a, const Tensor& b) { return conv2d(a, b, options); },
      .a = [=](const Tensor& dc, const Tensor& b) { return conv2d_backward_x(dc, b, x, options); },
      .b = [=](const Tensor& a,
               const Tensor& dc) { return conv2d_backward_w(a, dc, weight, options); }};
}

ProductForm transposed_form_of(const Shape& x, const Shape& weight, const Conv2dOptions& options,
                               Extent2 more) {
  return {
      .c = [=](const Tensor& a, const Tensor& b) { return conv_transpose2d(a, b, options, more); },
      // Rows that output padding added may hold one more step of the convolution than x has.
      .a =
          [=](const Tensor& dc, const Tensor& b) {
            return conv2d(dc, b, options).slice(2, 0, x[2]).slice(3, 0, x[3]);
          },
      .b = [=](const Tensor& a,
               const Tensor& dc) { return conv_transpose2d_backward_w(a, dc, weight, options); }};
}

/// The backward of x, weight and bias, and of a residual where there is a fourth input.
struct ConvolutionRule {
  const char* name;
  ProductForm form;
  SavedTensor x, weight, y;  ///< y where the activation's slope is found by it
  Activation activation;
  std::vector<bool> wants;

  Grads operator()(const Tensor& dy) const {
    const Tensor e = slope_of(activation, y, dy);
    Grads grads(wants.size());
    if (wants[0]) grads[0] = form.a(e, weight);
    if (wants[1]) grads[1] = form.b(x, e);
    if (wants[2]) grads[2] = conv2d_backward_bias(e);
    if (wants.size() > 3 && wants[3]) grads[3] = e;
    return grads;
  }
  VariableGrads again(const Recorded& r) const {
    const Variable e =
        activation == Activation::none ? r.dy() : slope_of(activation, r.y(), r.dy());
    VariableGrads grads = product_gradients(name, r, e, x, weight, form, GradientOrder::any);
    if (r.wants(2)) grads[2] = sum(e, Dims{0, 2, 3});
    if (r.inputs() > 3 && r.wants(3)) grads[3] = e;
    return grads;
  }
};

}  // namespace

Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv2dOptions& options, Activation activation, const Variable& residual) {
  const bool from_result = activation == Activation::none || activation == Activation::relu ||
                           activation == Activation::tanh || activation == Activation::sigmoid;
  const bool wanted = x.requires_grad() || weight.requires_grad() || bias.requires_grad() ||
                      residual.requires_grad();
  if (!from_result && wanted)
    return activated(activation, conv2d(x, weight, bias, options, Activation::none, residual));
  const Tensor y =
      conv2d(x.data(), weight.data(), options, {data_of(bias), data_of(residual), activation});
  return tape().record(
      "conv2d", {x, weight, bias, residual}, y,
      ConvolutionRule{.name = "conv2d",
                      .form = form_of(x.shape(), weight.shape(), options),
                      .x = saved_factor(x, weight),
                      .weight = saved_factor(weight, x),
                      .y = SavedTensor(activation == Activation::none ? Tensor() : y),
                      .activation = activation,
                      .wants = {x.requires_grad(), weight.requires_grad(), bias.requires_grad(),
                                residual.requires_grad()}},
      GradientOrder::any);
}

Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const Conv2dOptions& options, Extent2 output_padding) {
  const Tensor y =
      conv_transpose2d(x.data(), weight.data(), options, output_padding, {.bias = data_of(bias)});
  return tape().record(
      "conv_transpose2d", {x, weight, bias}, y,
      ConvolutionRule{
          .name = "conv_transpose2d",
          .form = transposed_form_of(x.shape(), weight.shape(), options, output_padding),
          .x = saved_factor(x, weight),
          .weight = saved_factor(weight, x),
          .y = {},
          .activation = Activation::none,
          .wants = {x.requires_grad(), weight.requires_grad(), bias.requires_grad()}},
      GradientOrder::any);
}

}  // namespace bs
