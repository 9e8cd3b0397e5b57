#include <bs/autograd/conv2d.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/view.h>

namespace bs {

namespace {

Tensor data_of(const Variable& v) { return v.defined() ? v.data() : Tensor(); }

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
  const Variable y = f == Activation::silu   ? silu(seen)
                     : f == Activation::gelu ? gelu(seen)
                                             : gelu(seen, Gelu::tanh);
  return last ? permute(y, {0, 3, 1, 2}) : y;
}

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
  const bool wants[] = {x.requires_grad(), weight.requires_grad(), bias.requires_grad(),
                        residual.requires_grad()};
  return tape().record(
      "conv2d", {x, weight, bias, residual}, y,
      [x = SavedTensor(x.data()), weight = SavedTensor(weight.data()),
       y = SavedTensor(activation == Activation::none ? Tensor() : y), options, activation,
       wants = std::to_array(wants)](const Tensor& dy) {
        const Tensor e = slope_of(activation, y, dy);
        Grads grads(4);
        if (wants[0]) grads[0] = conv2d_backward_x(e, weight, x.shape(), options);
        if (wants[1]) grads[1] = conv2d_backward_w(x, e, weight.shape(), options);
        if (wants[2]) grads[2] = conv2d_backward_bias(e);
        if (wants[3]) grads[3] = e;
        return grads;
      },
      GradientOrder::any);
}

Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const Conv2dOptions& options, Extent2 output_padding) {
  const bool wants[] = {x.requires_grad(), weight.requires_grad(), bias.requires_grad()};
  const Tensor y =
      conv_transpose2d(x.data(), weight.data(), options, output_padding, {.bias = data_of(bias)});
  return tape().record(
      "conv_transpose2d", {x, weight, bias}, y,
      [x = SavedTensor(x.data()), weight = SavedTensor(weight.data()), options,
       wants = std::to_array(wants)](const Tensor& dy) {
        // Rows that output padding added may hold one more step of the convolution than x has.
        const auto fit = [&](const Tensor& t) {
          return t.slice(2, 0, x.shape()[2]).slice(3, 0, x.shape()[3]);
        };
        Grads grads(3);
        if (wants[0]) grads[0] = fit(conv2d(dy, weight, options));
        if (wants[1]) grads[1] = conv_transpose2d_backward_w(x, dy, weight.shape(), options);
        if (wants[2]) grads[2] = conv2d_backward_bias(dy);
        return grads;
      },
      GradientOrder::any);
}

}  // namespace bs
