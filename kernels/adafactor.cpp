#include <bs/kernels/adafactor.h>

#include <bs/kernels/step_work.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace bs {

namespace {

void check_options(const AdafactorOptions& o) {
  BS_CHECK(o.beta2_decay <= 0, "adafactor: a beta2_decay of {} is positive", o.beta2_decay);
  BS_CHECK(o.learning_rate >= 0 && o.eps1.value_or(0) >= 0 && o.eps2 >= 0 && o.weight_decay >= 0,
           "adafactor: a rate of {}, eps of {} and {}, a decay of {}: none may be negative",
           o.learning_rate, o.eps1.value_or(0), o.eps2, o.weight_decay);
  BS_CHECK(o.d >= 1, "adafactor: d is {}, less than 1", o.d);
}

StepParameters<AdafactorParameter> checked(std::span<const AdafactorParameter> parameters,
                                           const AdafactorOptions& options,
                                           const GradientClip& clip) {
  auto present = checked_parameters("adafactor", parameters, std::array<const char*, 0>(), clip);
  const auto names = state_names(options);
  for (const AdafactorParameter& p : present.all())
    for (size_t i = 0; i < names.size(); ++i)
      if (const auto shape = AdafactorParameter::state_shape(i, p.value.shape()))
        check_state("adafactor", names[i], p.value, p.*AdafactorParameter::states[i], *shape);
  return present;
}

}  // namespace

std::optional<Shape> AdafactorParameter::state_shape(size_t i, const Shape& shape) {
  const int rank = shape.rank();
  if ((i == 2) != (rank < 2)) return std::nullopt;
  Shape of = shape;
  if (rank >= 2) of[i == 0 ? rank - 1 : rank - 2] = 1;
  return of;
}

PreparedStep prepared_adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
                                const AdafactorOptions& options, const GradientClip& clip,
                                const Tensor& numbers) {
  BS_CHECK(step >= 1, "adafactor: step {} comes before the first", step);
  check_options(options);
  auto present = checked(parameters, options, clip);
  if (present.empty()) return [] {};
  check_numbers("adafactor", numbers, 5, present.device());
  return [present = std::move(present), step, options, clip, numbers] {
    note_step("adafactor", present.all());
    BS_DISPATCH_WORK(present.device(), step_work(present.all()), adafactor, present.all(), step,
                     options, clip, numbers);
  };
}

void adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
               const AdafactorOptions& options, const GradientClip& clip, const Tensor& numbers) {
  prepared_adafactor(parameters, step, options, clip, numbers)();
}

std::array<double, 5> adafactor_numbers(int64_t step, const AdafactorOptions& options) {
  check_options(options);
  const auto t = static_cast<double>(step);
  const double share = std::pow(t, options.beta2_decay);
  return {1 - options.learning_rate * options.weight_decay, -1, 1 - share, share,
          std::min(options.learning_rate, 1 / std::sqrt(t))};
}

}  // namespace bs
