#include <bs/kernels/cpu/step_elements.h>
#include <bs/kernels/lion_step.h>

namespace bs::cpu {

void lion(std::span<const LionParameter> parameters, const LionOptions& options,
          const GradientClip& clip, const Tensor& numbers, Stream) {
  step_elements<LionStep>("lion", parameters, clip, numbers, options);
}

}  // namespace bs::cpu
