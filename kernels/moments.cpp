#include <bs/kernels/moments.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/parameter.h>

namespace bs {

std::vector<MomentParameter> checked_moments(const char* op,
                                             std::span<const MomentParameter> parameters,
                                             int64_t step, double beta1, double beta2,
                                             const GradientClip& clip) {
  BS_CHECK(step >= 1, "{}: step {} comes before the first", op, step);
  BS_CHECK(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1,
           "{}: betas {} and {} are not within [0, 1)", op, beta1, beta2);
  std::vector<MomentParameter> present;
  for (const MomentParameter& p : parameters) {
    if (!p.gradient.defined() || p.value.numel() == 0) continue;
    check_parameter(op, p.value, p.gradient);
    check_state(op, "first_moment", p.value, p.first_moment);
    check_state(op, "second_moment", p.value, p.second_moment);
    check_master(op, p.value, p.master);
    present.push_back(p);
    present.back().gradient = contiguous(p.gradient);
    check_same_device(op, present.front().value, p.value);
  }
  if (!present.empty()) check_clip(op, clip, present.front().value.device());
  return present;
}

}  // namespace bs
