#include <bs/kernels/lamb.h>

#include <bs/kernels/lamb_step.h>
#include <bs/kernels/step_work.h>

namespace bs {

PreparedStep prepared_lamb(std::span<const LambParameter> parameters, int64_t step,
                           const LambOptions& options, const GradientClip& clip,
                           const Tensor& numbers) {
  check_rates("lamb", options.learning_rate, options.eps, options.weight_decay);
  check_moments("lamb", step, options.beta1, options.beta2);
  auto present = checked_parameters("lamb", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("lamb", numbers, 3, present.device());
  return [present = std::move(present), step, options, clip, numbers] {
    note_step("lamb", present.all());
    BS_DISPATCH_WORK(present.device(), step_work(present.all()), lamb, present.all(), step, options,
                     clip, numbers);
  };
}

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip, const Tensor& numbers) {
  prepared_lamb(parameters, step, options, clip, numbers)();
}

std::array<double, 3> lamb_numbers(int64_t step, const LambOptions& options) {
  check_rates("lamb", options.learning_rate, options.eps, options.weight_decay);
  return LambStep<double>::numbers(step, options);
}

}  // namespace bs
