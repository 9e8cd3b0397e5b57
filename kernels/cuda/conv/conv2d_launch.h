#pragma once
/** @file Convolutions as products: kernels of the tile engine with a loader that gathers pixels. */
#include <bs/kernels/cuda/conv/conv2d_plan.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/stream.h>

#include <string>
#include <vector>

namespace bs::cuda {

/** @brief A kernel before sizes are known: the product's description, in which a is gathered, or b
 *  for the gradient of filters; what its alignment says is of channels. */
struct Conv2dKernel {
  Conv2dKind kind = Conv2dKind::fprop;
  GemmDescription description;
  std::string key;  ///< tells its text from others'
};
/** @brief That of a plan. */
Conv2dKernel conv2d_kernel(const Conv2dForm& form, const GemmEpilogue& epilogue);
/** @brief Its text, and that of the kernel that adds up slices. */
jit::Source conv2d_source(const Conv2dKernel& kernel);
jit::Source conv2d_join_source(const Conv2dKernel& kernel);

/** @brief The tensors of one convolution, channels-last and dense; filters are [k][r][s][c]. */
struct Conv2dTensors {
  Tensor image;                       ///< x; of its gradient the result
  Tensor filters;                     ///< likewise
  Tensor pixels;                      ///< y, or its gradient
  std::vector<Tensor> operands = {};  ///< of the epilogue, behind the result: [1, rows, columns]
  std::vector<double> scalars = {};
};

/** @brief Queues a convolution whose depth goes in `slices`, where the description has a SplitK. */
void launch_conv2d(const Conv2dProblem& problem, const Conv2dKernel& kernel, int slices,
                   const Conv2dTensors& tensors, Stream stream);

}  // namespace bs::cuda
