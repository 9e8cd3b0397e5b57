#include <bs/kernels/axpby.h>

#include <limits>
#include <utility>

namespace bs {

PreparedStep prepared_axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
                            const GradientClip& clip, const Tensor& numbers) {
  auto present = checked_parameters("axpby", parameters, std::array<const char*, 0>(), clip);
  if (present.empty()) return [] {};
  check_numbers("axpby", numbers, 2, present.device());
  return [present = std::move(present), keep, mix, clip, numbers] {
    note_step("axpby", present.all());
    BS_DISPATCH(present.device(), axpby, present.all(), keep, mix, clip, numbers);
  };
}

void axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
           const GradientClip& clip, const Tensor& numbers) {
  prepared_axpby(parameters, keep, mix, clip, numbers)();
}

GradientClip only_skips(const GradientClip& clip) {
  return {clip.norm, std::numeric_limits<double>::infinity(), clip.skip_nonfinite, 1};
}

}  // namespace bs
