#include <bs/autograd/channel_norm.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>

namespace bs {

Variable affine_channels(const Variable& h, std::span<const Variable> inputs,
                         const AffineChannels& saved, DType dtype) {
  BS_CHECK(inputs.size() == 4, "affine_channels: {} inputs instead of x, weight, bias and residual",
           inputs.size());
  BS_CHECK(h.rank() >= 2, "affine_channels: {} has no axis of channels", h.shape());
  Shape channels = Shape::filled(h.rank() - 1, 1);
  channels[0] = h.size(1);
  const auto of_channels = [&](const Variable& v) { return view(cast(v, h.dtype()), channels); };
  Variable y = h;
  if (inputs[1].defined())
    y = y * of_channels(inputs[1]);
  else if (saved.weight.defined())
    y = y * of_channels(Variable(saved.weight));
  if (inputs[2].defined())
    y = y + of_channels(inputs[2]);
  else if (saved.bias.defined())
    y = y + of_channels(Variable(saved.bias));
  if (inputs[3].defined()) y = joined(y, inputs[3]);
  if (saved.relu) y = where(gt(saved.y.defined() ? saved.y : y.data(), 0), y, 0);
  return cast(y, dtype);
}

}  // namespace bs
