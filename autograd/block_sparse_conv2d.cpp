#include <bs/autograd/block_sparse_conv2d.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable block_sparse_conv2d(const Variable& x, const SparseVariable& weight, Extent2 kernel,
                             const Variable& bias, const Conv2dOptions& options) {
  const bool wants[] = {x.requires_grad(), weight.values.requires_grad(), bias.requires_grad()};
  const Tensor y = block_sparse_conv2d(x.data(), weight.data(), kernel, options,
                                       bias.defined() ? bias.data() : Tensor());
  return tape().record(
      "block_sparse_conv2d", {x, weight.values, bias}, y,
      [x = SavedTensor(x.data()), layout = weight.layout,
       values = SavedTensor(weight.values.data()), kernel, options,
       wants = std::to_array(wants)](const Tensor& dy) {
        Grads grads(3);
        if (wants[0])
          grads[0] =
              block_sparse_conv2d_backward_x(dy, {layout, values}, kernel, x.shape(), options);
        if (wants[1]) grads[1] = block_sparse_conv2d_backward_w(x, dy, layout, kernel, options);
        if (wants[2]) grads[2] = conv2d_backward_bias(dy);
        return grads;
      },
      GradientOrder::any);
}

}  // namespace bs
