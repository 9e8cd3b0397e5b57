#pragma once
/** @file The block-sparse products of layouts that are all but dense, by way of dense products. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Path::dense of dsd: through cuBLAS and a dense copy of the sparse matrix; with an
 * epilogue, through GemmOperation. Where B is not finite all is computed again by the blocks there
 * are. */
void dense_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
               const DsdProblem& p, Stream stream);
/** @brief Path::dense of sdd: all of the product, and of it the blocks that there are. */
void dense_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream);
/** @brief Path::blocks of sdd: a dense product that stores only the blocks there are. */
void dense_blocks(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
                  Stream stream);

}  // namespace bs::cuda
