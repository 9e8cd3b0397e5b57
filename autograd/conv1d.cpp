#include <bs/autograd/conv1d.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv1dOptions& options) {
  const bool wants[] = {x.requires_grad(), weight.requires_grad(), bias.requires_grad()};
  const Tensor y =
      conv1d(x.data(), weight.data(), options, {.bias = bias.defined() ? bias.data() : Tensor()});
  return tape().record(
      "conv1d", {x, weight, bias}, y,
      [x = SavedTensor(x.data()), weight = SavedTensor(weight.data()), options,
       wants = std::to_array(wants)](const Tensor& dy) {
        Grads grads(3);
        if (wants[0]) grads[0] = conv1d_backward_x(dy, weight, x.shape(), options);
        if (wants[1]) grads[1] = conv1d_backward_w(x, dy, weight.shape(), options);
        if (wants[2]) grads[2] = conv2d_backward_bias(dy.unsqueeze(2));
        return grads;
      },
      GradientOrder::any);
}

}  // namespace bs
