#include <bs/kernels/sgd.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/parameter.h>

#include <vector>

namespace bs {

void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
         const GradientClip& clip, const Tensor& rate) {
  BS_CHECK(!options.nesterov || options.momentum > 0, "sgd: nesterov needs a momentum, not {}",
           options.momentum);
  BS_CHECK(options.learning_rate >= 0 && options.momentum >= 0 && options.weight_decay >= 0,
           "sgd: a rate of {}, a momentum of {}, a decay of {}: none may be negative",
           options.learning_rate, options.momentum, options.weight_decay);
  std::vector<SgdParameter> present;
  for (const SgdParameter& p : parameters) {
    if (!p.gradient.defined() || p.value.numel() == 0) continue;
    check_parameter("sgd", p.value, p.gradient);
    if (options.momentum != 0) check_state("sgd", "momentum", p.value, p.momentum);
    check_master("sgd", p.value, p.master);
    present.push_back(p);
    present.back().gradient = contiguous(p.gradient);
    if (options.momentum == 0) present.back().momentum = {};
    check_same_device("sgd", present.front().value, p.value);
  }
  if (present.empty()) return;
  const Device device = present.front().value.device();
  check_clip("sgd", clip, device);
  check_numbers("sgd", rate, 1, device);
  BS_DISPATCH(device, sgd, present, options, clip, rate);
}

}  // namespace bs
