#include <bs/kernels/adamw.h>

namespace bs {

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip) {
  const auto present =
      checked_moments("adamw", parameters, step, options.beta1, options.beta2, clip);
  if (present.empty()) return;
  BS_DISPATCH(present.front().value.device(), adamw, present, step, options, clip);
}

}  // namespace bs
