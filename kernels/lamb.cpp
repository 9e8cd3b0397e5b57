#include <bs/kernels/lamb.h>

#include <bs/kernels/lamb_step.h>
#include <bs/kernels/parameter.h>

namespace bs {

namespace {

void check_rates(const LambOptions& o) {
  BS_CHECK(o.learning_rate >= 0 && o.eps >= 0 && o.weight_decay >= 0,
           "lamb: a rate of {}, an eps of {}, a decay of {}: none may be negative", o.learning_rate,
           o.eps, o.weight_decay);
}

}  // namespace

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip, const Tensor& numbers) {
  check_rates(options);
  const auto present =
      checked_moments("lamb", parameters, step, options.beta1, options.beta2, clip);
  if (present.empty()) return;
  check_numbers("lamb", numbers, 3, present.front().value.device());
  BS_DISPATCH(present.front().value.device(), lamb, present, step, options, clip, numbers);
}

std::array<double, 3> lamb_numbers(int64_t step, const LambOptions& options) {
  check_rates(options);
  return LambStep<double>::numbers(step, options);
}

}  // namespace bs
