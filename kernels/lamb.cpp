#include <bs/kernels/copy.h>
#include <bs/kernels/lamb.h>
#include <bs/kernels/parameter.h>

#include <vector>

namespace bs {

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip) {
  BS_CHECK(step >= 1, "lamb: step {} comes before the first", step);
  BS_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
           "lamb: betas {} and {} are not within [0, 1)", options.beta1, options.beta2);
  std::vector<LambParameter> present;
  for (const LambParameter& p : parameters) {
    if (!p.gradient.defined() || p.value.numel() == 0) continue;
    check_parameter("lamb", p.value, p.gradient);
    check_state("lamb", "first_moment", p.value, p.first_moment);
    check_state("lamb", "second_moment", p.value, p.second_moment);
    check_master("lamb", p.value, p.master);
    present.push_back(p);
    present.back().gradient = contiguous(p.gradient);
    check_same_device("lamb", present.front().value, p.value);
  }
  if (present.empty()) return;
  const Device device = present.front().value.device();
  check_clip("lamb", clip, device);
  BS_DISPATCH(device, lamb, present, step, options, clip);
}

}  // namespace bs
