#include <bs/kernels/axpby_step.h>
#include <bs/kernels/cpu/step_elements.h>

namespace bs::cpu {

void axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
           const GradientClip& clip, const Tensor& numbers, Stream) {
  step_elements<AxpbyStep>("axpby", parameters, clip, numbers, keep, mix);
}

}  // namespace bs::cpu
