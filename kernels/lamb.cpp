#include <bs/kernels/lamb.h>

namespace bs {

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip) {
  const auto present =
      checked_moments("lamb", parameters, step, options.beta1, options.beta2, clip);
  if (present.empty()) return;
  BS_DISPATCH(present.front().value.device(), lamb, present, step, options, clip);
}

}  // namespace bs
