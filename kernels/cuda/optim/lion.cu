#include <bs/kernels/lion_step.h>
#include <bs/kernels/cuda/optim/step_elements.cuh>

namespace bs::cuda {

void lion(std::span<const LionParameter> parameters, const LionOptions& options,
          const GradientClip& clip, const Tensor& numbers, Stream stream) {
  step_elements<LionStep>("lion", parameters, clip, numbers, stream, options);
}

}  // namespace bs::cuda
