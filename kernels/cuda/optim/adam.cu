#include <bs/kernels/adam_step.h>
#include <bs/kernels/cuda/optim/step_elements.cuh>

namespace bs::cuda {

void adam(std::span<const AdamParameter> parameters, int64_t step, const AdamOptions& options,
          const GradientClip& clip, const Tensor& numbers, Stream stream) {
  step_elements<AdamStep>("adam", parameters, clip, numbers, stream, step, options);
}

}  // namespace bs::cuda
