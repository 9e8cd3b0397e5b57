#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/pad_axes.h>

namespace bs::cpu {

void pad_axes(const Operand& x, const AxisPlaces& places, double value, const Tensor& y,
              Stream stream) {
  const PadViews part = pad_views(x, places, y);
  if (part.to.shape() != y.shape()) fill(y, value, stream);
  if (part.to.numel() > 0) copy(part.from, part.to, stream);
}

}  // namespace bs::cpu
