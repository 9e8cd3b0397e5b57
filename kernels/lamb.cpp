#include <bs/kernels/lamb.h>

#include <bs/kernels/lamb_step.h>
#include <bs/kernels/parameter.h>

namespace bs {

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip, const Tensor& numbers) {
  const auto present =
      checked_moments("lamb", parameters, step, options.beta1, options.beta2, clip);
  if (present.empty()) return;
  check_numbers("lamb", numbers, 3, present.front().value.device());
  BS_DISPATCH(present.front().value.device(), lamb, present, step, options, clip, numbers);
}

std::array<double, 3> lamb_numbers(int64_t step, const LambOptions& options) {
  return LambStep<double>::numbers(step, options);
}

}  // namespace bs
