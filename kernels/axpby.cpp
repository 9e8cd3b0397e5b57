#include <bs/kernels/axpby.h>

#include <limits>

namespace bs {

void axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
           const GradientClip& clip, const Tensor& numbers) {
  const auto present = checked_parameters("axpby", parameters, std::array<const char*, 0>(), clip);
  if (present.empty()) return;
  const Device device = present.front().value.device();
  check_numbers("axpby", numbers, 2, device);
  note_step("axpby", present);
  BS_DISPATCH(device, axpby, present, keep, mix, clip, numbers);
}

GradientClip only_skips(const GradientClip& clip) {
  return {clip.norm, std::numeric_limits<double>::infinity(), clip.skip_nonfinite, 1};
}

}  // namespace bs
