#include <bs/kernels/adam.h>

#include <bs/kernels/adam_step.h>
#include <bs/kernels/step_work.h>

namespace bs {

PreparedStep prepared_adam(std::span<const AdamParameter> parameters, int64_t step,
                           const AdamOptions& options, const GradientClip& clip,
                           const Tensor& numbers) {
  check_rates("adam", options.learning_rate, options.eps, options.weight_decay);
  check_moments("adam", step, options.beta1, options.beta2);
  auto present = checked_parameters("adam", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("adam", numbers, 2, present.device());
  return [present = std::move(present), step, options, clip, numbers] {
    note_step("adam", present.all());
    BS_DISPATCH_WORK(present.device(), step_work(present.all()), adam, present.all(), step, options,
                     clip, numbers);
  };
}

void adam(std::span<const AdamParameter> parameters, int64_t step, const AdamOptions& options,
          const GradientClip& clip, const Tensor& numbers) {
  prepared_adam(parameters, step, options, clip, numbers)();
}

std::array<double, 2> adam_numbers(int64_t step, const AdamOptions& options) {
  check_rates("adam", options.learning_rate, options.eps, options.weight_decay);
  return AdamStep<double>::numbers(step, options);
}

}  // namespace bs
