#pragma once
/** @file The block-sparse products of layouts that are all but dense, by way of dense products. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Computes the product densely where that is faster, or returns false. dsd goes through
 * cuBLAS and a dense copy of the sparse matrix; with an epilogue, through GemmOperation. sdd goes
 * through gemm_blocks, which stores only the blocks there are, or where that does not apply (f32,
 * blocks of 8, odd strides) through all of the dense product; never with an epilogue, which may
 * read and store values of blocks. For single matrices of 16-bit types and of f32 (f32 dsd: without
 * an epilogue) on Hopper, whose crossover with the sparse kernels is known, and where a dense
 * matrix is a sixteenth of the memory at most. */
bool dense_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
               Stream stream);
bool dense_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream);

}  // namespace bs::cuda
