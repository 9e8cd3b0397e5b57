#include <bs/kernels/cpu/step_elements.h>
#include <bs/kernels/rmsprop_step.h>

namespace bs::cpu {

void rmsprop(std::span<const RMSpropParameter> parameters, const RMSpropOptions& options,
             const GradientClip& clip, const Tensor& rate, Stream) {
  step_elements<RMSpropStep>("rmsprop", parameters, clip, rate, options);
}

}  // namespace bs::cpu
