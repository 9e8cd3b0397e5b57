#include <bs/kernels/adamw_step.h>
#include <bs/kernels/cuda/optim/step_elements.cuh>

namespace bs::cuda {

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip, const Tensor& numbers, Stream stream) {
  step_elements<AdamWStep>("adamw", parameters, clip, numbers, stream, step, options);
}

}  // namespace bs::cuda
