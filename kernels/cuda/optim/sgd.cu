#include <bs/kernels/sgd_step.h>
#include <bs/kernels/cuda/optim/step_elements.cuh>

namespace bs::cuda {

void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
         const GradientClip& clip, const Tensor& rate, Stream stream) {
  step_elements<SgdStep>("sgd", parameters, clip, rate, stream, options);
}

}  // namespace bs::cuda
