#include <bs/autograd/channel_norm.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>

namespace bs {

Variable affine_channels(const Variable& h, std::span<const Variable> inputs, const Tensor& weight,
                         const Tensor& positive, DType dtype) {
  BS_CHECK(inputs.size() == 4, "affine_channels: {} inputs instead of x, weight, bias and residual",
           inputs.size());
  BS_CHECK(h.rank() >= 2, "affine_channels: {} has no axis of channels", h.shape());
  Shape channels = Shape::filled(h.rank() - 1, 1);
  channels[0] = h.size(1);
  const auto of_channels = [&](const Variable& v) { return view(cast(v, h.dtype()), channels); };
  Variable y = h;
  if (inputs[1].defined())
    y = y * of_channels(inputs[1]);
  else if (weight.defined())
    y = y * of_channels(Variable(weight));
  if (inputs[2].defined()) y = y + of_channels(inputs[2]);
  if (inputs[3].defined()) y = y + cast(inputs[3], h.dtype());
  if (positive.defined()) y = where(gt(positive, 0), y, 0);
  return cast(y, dtype);
}

}  // namespace bs
