#pragma once
/** @file Convolutions as products: kernels of the tile engine with a loader that gathers pixels. */
#include <bs/kernels/cuda/conv/conv2d_plan.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/stream.h>
#include <bs/kernels/cuda/device/conv/conv2d_params.cuh>

#include <string>
#include <vector>

namespace bs::cuda {

/** @brief A kernel before sizes are known: the product's description, in which a is gathered, or b
 *  for the gradient of filters; what its alignment says is of channels. */
struct Conv2dKernel {
  Conv2dKind kind = Conv2dKind::fprop;
  GemmDescription description;
  std::string key;  ///< tells its text from others'
  Conv2dLoads loads = {};
};
/** @brief That of a plan. */
Conv2dKernel conv2d_kernel(const Conv2dForm& form, const GemmEpilogue& epilogue);
/** @brief Its text, and that of the kernel that adds up slices. */
jit::Source conv2d_source(const Conv2dKernel& kernel);
jit::Source conv2d_join_source(const Conv2dKernel& kernel);

/** @brief The lists of a convolution whose filters are blocks, on the device. */
struct Conv2dDevicePieces {
  int block = 0, tiles = 0;
  const int32_t* offsets = nullptr;
  const device::Conv2dPiece* pieces = nullptr;
};

/** @brief The tensors of one convolution, channels-last and dense; filters are [k][r][s][c], or
 *  blocks [block][k][c] where there are lists of them. */
struct Conv2dTensors {
  Tensor image;                       ///< x; of its gradient the result
  Tensor filters;                     ///< likewise
  Tensor pixels;                      ///< y, or its gradient
  std::vector<Tensor> operands = {};  ///< of the epilogue, behind the result: [1, rows, columns]
  std::vector<double> scalars = {};
  Conv2dDevicePieces pieces = {};
};

/** @brief Queues a convolution whose depth goes in `slices`, where the description has a SplitK. */
void launch_conv2d(const Conv2dProblem& problem, const Conv2dKernel& kernel, int slices,
                   const Conv2dTensors& tensors, Stream stream);

}  // namespace bs::cuda
