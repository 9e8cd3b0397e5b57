#include <bs/kernels/rmsprop_step.h>
#include <bs/kernels/cuda/optim/step_elements.cuh>

namespace bs::cuda {

void rmsprop(std::span<const RMSpropParameter> parameters, const RMSpropOptions& options,
             const GradientClip& clip, const Tensor& rate, Stream stream) {
  step_elements<RMSpropStep>("rmsprop", parameters, clip, rate, stream, options);
}

}  // namespace bs::cuda
