#include <bs/kernels/sgd.h>

#include <bs/kernels/step_work.h>

namespace bs {

namespace {

void check_options(const SgdOptions& o) {
  BS_CHECK(!o.nesterov || o.momentum > 0, "sgd: nesterov needs a momentum, not {}", o.momentum);
  BS_CHECK(o.learning_rate >= 0 && o.momentum >= 0 && o.weight_decay >= 0,
           "sgd: a rate of {}, a momentum of {}, a decay of {}: none may be negative",
           o.learning_rate, o.momentum, o.weight_decay);
}

}  // namespace

PreparedStep prepared_sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
                          const GradientClip& clip, const Tensor& rate) {
  check_options(options);
  auto present = checked_parameters("sgd", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("sgd", rate, 1, present.device());
  return [present = std::move(present), options, clip, rate] {
    note_step("sgd", present.all());
    BS_DISPATCH_WORK(present.device(), step_work(present.all()), sgd, present.all(), options, clip,
                     rate);
  };
}

void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
         const GradientClip& clip, const Tensor& rate) {
  prepared_sgd(parameters, options, clip, rate)();
}

std::array<double, 1> sgd_numbers(int64_t, const SgdOptions& options) {
  check_options(options);
  return {options.learning_rate};
}

}  // namespace bs
