#include <bs/kernels/lion.h>

#include <bs/kernels/lion_step.h>
#include <bs/kernels/step_work.h>

namespace bs {

namespace {

void check_options(const LionOptions& o) {
  BS_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
           "lion: betas {} and {} are not within [0, 1)", o.beta1, o.beta2);
  BS_CHECK(o.learning_rate >= 0 && o.weight_decay >= 0,
           "lion: a rate of {}, a decay of {}: none may be negative", o.learning_rate,
           o.weight_decay);
}

}  // namespace

PreparedStep prepared_lion(std::span<const LionParameter> parameters, const LionOptions& options,
                           const GradientClip& clip, const Tensor& numbers) {
  check_options(options);
  auto present = checked_parameters("lion", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("lion", numbers, 2, present.device());
  return [present = std::move(present), options, clip, numbers] {
    note_step("lion", present.all());
    BS_DISPATCH_WORK(present.device(), step_work(present.all()), lion, present.all(), options, clip,
                     numbers);
  };
}

void lion(std::span<const LionParameter> parameters, const LionOptions& options,
          const GradientClip& clip, const Tensor& numbers) {
  prepared_lion(parameters, options, clip, numbers)();
}

std::array<double, 2> lion_numbers(int64_t, const LionOptions& options) {
  check_options(options);
  return LionStep<double>::numbers(options);
}

}  // namespace bs
