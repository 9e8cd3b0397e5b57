#include <bs/autograd/conv1d.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>

namespace bs {

namespace {

ProductForm form_of(const Shape& x, const Shape& weight, const Conv1dOptions& options) {
  return {
      .c = [=](const Tensor& a, const Tensor& b) { return conv1d(a, b, options); },
      .a = [=](const Tensor& dc, const Tensor& b) { return conv1d_backward_x(dc, b, x, options); },
      .b = [=](const Tensor& a,
               const Tensor& dc) { return conv1d_backward_w(a, dc, weight, options); }};
}

}  // namespace

Variable conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv1dOptions& options) {
  const bool wants[] = {x.requires_grad(), weight.requires_grad(), bias.requires_grad()};
  const Tensor y = conv1d(x.data(), weight.data(), options, {.bias = data_of(bias)});
  const ProductForm form = form_of(x.shape(), weight.shape(), options);
  const SavedTensor kept_x(x.data()), kept_weight(weight.data());
  return tape().record(
      "conv1d", {x, weight, bias}, y,
      Twice{[=, wants = std::to_array(wants)](const Tensor& dy) {
              return Grads{wants[0] ? form.a(dy, kept_weight) : Tensor(),
                           wants[1] ? form.b(kept_x, dy) : Tensor(),
                           wants[2] ? conv2d_backward_bias(dy.unsqueeze(2)) : Tensor()};
            },
            [=](const Recorded& r) {
              VariableGrads grads = product_gradients("conv1d", r, r.dy(), kept_x, kept_weight,
                                                      form, GradientOrder::any);
              if (r.wants(2)) grads[2] = sum(r.dy(), Dims{0, 2});
              return grads;
            }},
      GradientOrder::any);
}

}  // namespace bs
