#include <bs/kernels/adamw_step.h>
#include <bs/kernels/cpu/step_elements.h>

namespace bs::cpu {

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip, const Tensor& numbers, Stream) {
  step_elements<AdamWStep>("adamw", parameters, clip, numbers, step, options);
}

}  // namespace bs::cpu
