#pragma once
/** @file The block-sparse products of layouts that are all but dense, by way of dense products. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Computes the product through cuBLAS and a dense copy of the sparse matrix where that is
 *  faster, or returns false; with an epilogue, through GemmOperation, and never for sdd, whose
 *  epilogue may read and store values of blocks. For single matrices of 16-bit types on Hopper,
 * whose crossover with the sparse kernels is known. */
bool dense_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
               Stream stream);
bool dense_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream);

}  // namespace bs::cuda
