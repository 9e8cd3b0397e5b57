#include <bs/kernels/cpu/step_elements.h>
#include <bs/kernels/sgd_step.h>

namespace bs::cpu {

void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
         const GradientClip& clip, const Tensor& rate, Stream) {
  step_elements<SgdStep>("sgd", parameters, clip, rate, options);
}

}  // namespace bs::cpu
