#pragma once
/** @file Products as plans see them: what operands look like in memory, in words that no plan has
 * to look up. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

DsdShape dsd_shape(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p);
SddShape sdd_shape(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p);

}  // namespace bs::cuda
