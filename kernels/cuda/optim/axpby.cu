#include <bs/kernels/axpby_step.h>
#include <bs/kernels/cuda/optim/step_elements.cuh>

namespace bs::cuda {

void axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
           const GradientClip& clip, const Tensor& numbers, Stream stream) {
  step_elements<AxpbyStep>("axpby", parameters, clip, numbers, stream, keep, mix);
}

}  // namespace bs::cuda
