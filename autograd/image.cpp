#include <bs/autograd/image.h>

#include <bs/autograd/recorded.h>

namespace bs {

Variable channels_last(const Variable& x) {
  // The gradient may come in any format, and is passed on as it is.
  return record_linear(
      "channels_last", x, channels_last(x.data()), [](const auto& dy) { return dy; },
      GradientOrder::any);
}

Variable relayout(const Variable& x, ImageFormat from, ImageFormat to) {
  return record_linear("relayout", x, relayout(x.data(), from, to),
                       [from, to](const auto& dy) { return relayout(dy, to, from); });
}

}  // namespace bs
