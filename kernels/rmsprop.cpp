#include <bs/kernels/rmsprop.h>

#include <bs/kernels/step_work.h>

namespace bs {

namespace {

void check_options(const RMSpropOptions& o) {
  BS_CHECK(o.alpha >= 0 && o.alpha < 1, "rmsprop: an alpha of {} is not within [0, 1)", o.alpha);
  BS_CHECK(o.learning_rate >= 0 && o.eps >= 0 && o.weight_decay >= 0 && o.momentum >= 0,
           "rmsprop: a rate of {}, an eps of {}, a decay of {}, a momentum of {}: none may be "
           "negative",
           o.learning_rate, o.eps, o.weight_decay, o.momentum);
}

}  // namespace

PreparedStep prepared_rmsprop(std::span<const RMSpropParameter> parameters,
                              const RMSpropOptions& options, const GradientClip& clip,
                              const Tensor& rate) {
  check_options(options);
  auto present = checked_parameters("rmsprop", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("rmsprop", rate, 1, present.device());
  return [present = std::move(present), options, clip, rate] {
    note_step("rmsprop", present.all());
    BS_DISPATCH_WORK(present.device(), step_work(present.all()), rmsprop, present.all(), options,
                     clip, rate);
  };
}

void rmsprop(std::span<const RMSpropParameter> parameters, const RMSpropOptions& options,
             const GradientClip& clip, const Tensor& rate) {
  prepared_rmsprop(parameters, options, clip, rate)();
}

std::array<double, 1> rmsprop_numbers(int64_t, const RMSpropOptions& options) {
  check_options(options);
  return {options.learning_rate};
}

}  // namespace bs
