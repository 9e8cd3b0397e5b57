#pragma once
/** @file The pixels and taps of a convolution as its kernels walk them. */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/cuda/conv/conv2d_plan.h>
#include <bs/lib/cuda/tensor_map.h>
#include <bs/kernels/cuda/device/conv/conv2d_params.cuh>

namespace bs::cuda {

/** @brief Pixels of the result and its filter gradient are those of y; of dx those of a phase. */
device::Conv2dGrid conv2d_grid(const Conv2dProblem& problem, Conv2dKind kind);

/** @brief The walk of the copy engine over the image that is read; address, element and pixels of a
 *  copy are left open. */
Im2colTensor conv2d_walk(const Conv2dProblem& problem, Conv2dKind kind);

}  // namespace bs::cuda
