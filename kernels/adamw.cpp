#include <bs/kernels/adamw.h>

#include <bs/kernels/adamw_step.h>
#include <bs/kernels/step_work.h>

namespace bs {

PreparedStep prepared_adamw(std::span<const AdamWParameter> parameters, int64_t step,
                            const AdamWOptions& options, const GradientClip& clip,
                            const Tensor& numbers) {
  check_rates("adamw", options.learning_rate, options.eps, options.weight_decay);
  check_moments("adamw", step, options.beta1, options.beta2);
  auto present = checked_parameters("adamw", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("adamw", numbers, 3, present.device());
  return [present = std::move(present), step, options, clip, numbers] {
    note_step("adamw", present.all());
    BS_DISPATCH_WORK(present.device(), step_work(present.all()), adamw, present.all(), step,
                     options, clip, numbers);
  };
}

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip, const Tensor& numbers) {
  prepared_adamw(parameters, step, options, clip, numbers)();
}

std::array<double, 3> adamw_numbers(int64_t step, const AdamWOptions& options) {
  check_rates("adamw", options.learning_rate, options.eps, options.weight_decay);
  return AdamWStep<double>::numbers(step, options);
}

}  // namespace bs
