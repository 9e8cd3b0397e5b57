#include <bs/kernels/adamw.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/parameter.h>

#include <vector>

namespace bs {

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip) {
  BS_CHECK(step >= 1, "adamw: step {} comes before the first", step);
  BS_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
           "adamw: betas {} and {} are not within [0, 1)", options.beta1, options.beta2);
  std::vector<AdamWParameter> present;
  for (const AdamWParameter& p : parameters) {
    if (!p.gradient.defined() || p.value.numel() == 0) continue;
    check_parameter("adamw", p.value, p.gradient);
    check_state("adamw", "first_moment", p.value, p.first_moment);
    check_state("adamw", "second_moment", p.value, p.second_moment);
    check_master("adamw", p.value, p.master);
    present.push_back(p);
    present.back().gradient = contiguous(p.gradient);
    check_same_device("adamw", present.front().value, p.value);
  }
  if (present.empty()) return;
  const Device device = present.front().value.device();
  check_clip("adamw", clip, device);
  BS_DISPATCH(device, adamw, present, step, options, clip);
}

}  // namespace bs
