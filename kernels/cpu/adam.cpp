#include <bs/kernels/adam_step.h>
#include <bs/kernels/cpu/step_elements.h>

namespace bs::cpu {

void adam(std::span<const AdamParameter> parameters, int64_t step, const AdamOptions& options,
          const GradientClip& clip, const Tensor& numbers, Stream) {
  step_elements<AdamStep>("adam", parameters, clip, numbers, step, options);
}

}  // namespace bs::cpu
