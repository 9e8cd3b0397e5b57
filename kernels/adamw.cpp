#include <bs/kernels/adamw.h>

#include <bs/kernels/adamw_step.h>
#include <bs/kernels/parameter.h>

namespace bs {

namespace {

void check_rates(const AdamWOptions& o) {
  BS_CHECK(o.learning_rate >= 0 && o.eps >= 0 && o.weight_decay >= 0,
           "adamw: a rate of {}, an eps of {}, a decay of {}: none may be negative",
           o.learning_rate, o.eps, o.weight_decay);
}

}  // namespace

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip, const Tensor& numbers) {
  check_rates(options);
  const auto present =
      checked_moments("adamw", parameters, step, options.beta1, options.beta2, clip);
  if (present.empty()) return;
  check_numbers("adamw", numbers, 3, present.front().value.device());
  BS_DISPATCH(present.front().value.device(), adamw, present, step, options, clip, numbers);
}

std::array<double, 3> adamw_numbers(int64_t step, const AdamWOptions& options) {
  check_rates(options);
  return AdamWStep<double>::numbers(step, options);
}

}  // namespace bs
