#pragma once
/** @file Convolutions as products of warpgroups whose operands the copy engine gathers (im2col). */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/cuda/conv/conv2d_plan.h>
#include <bs/kernels/gemm_description.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/stream.h>

#include <vector>

namespace bs::cuda {

/** @brief What the kernel of a tile is: rows are pixels, or filters in their own gradient. */
GemmDescription conv2d_description(const Conv2dForm& form, const GemmEpilogue& epilogue);
/** @brief Its text. */
jit::Source conv2d_source(const Conv2dForm& form, const GemmEpilogue& epilogue);

/** @brief The tensors of one convolution, channels-last and dense; filters are [k][r][s][c]. */
struct Conv2dTensors {
  Tensor image;    ///< x; of its gradient the result
  Tensor filters;  ///< likewise
  Tensor pixels;   ///< y, or its gradient
  GemmEpilogue epilogue = GemmEpilogue(epilogue::accumulator());
  std::vector<Tensor> operands = {};  ///< of the epilogue, behind the result: [1, rows, columns]
};

/** @brief Queues the convolution by a plan whose path is warpgroup. */
void conv2d_warpgroup(const Conv2dProblem& problem, const Conv2dPlan& plan,
                      const Conv2dTensors& tensors, Stream stream);

}  // namespace bs::cuda
