#include <bs/nn/image.h>

#include <cmath>

namespace bs::nn {

Upsample::Upsample(const Options& options) : options_(options) {
  BS_CHECK(options.scale > 0, "upsample: scale {} is not positive", options.scale);
}

Variable Upsample::forward(const Variable& x) const {
  const auto& o = options_;
  BS_CHECK(x.rank() == 4, "upsample: x {} is no [N, C, H, W]", x.shape());
  const auto scaled = [&](int64_t size, int64_t n) {
    if (size > 0) return size;
    const double extent = std::floor(o.scale * static_cast<double>(n));
    BS_CHECK(extent < 0x1p53, "upsample: x {} by a scale of {} is too large", x.shape(), o.scale);
    return static_cast<int64_t>(extent);
  };
  return interpolate(x, {.size = {scaled(o.size.h, x.size(2)), scaled(o.size.w, x.size(3))},
                         .mode = o.mode,
                         .align_corners = o.align_corners});
}

Variable Flatten::forward(const Variable& x) const {
  return flatten(x, options_.from, options_.to);
}

}  // namespace bs::nn
