#pragma once
/** @file The dense product of 16 bits on Hopper that all large ones are made of, plain or not. */
#include <bs/kernels/gemm_description.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Row-major D of f16 or bf16 by tiles of 128 x 256, the fastest for large matrices. */
GemmDescription describe_large_matmul(DType dtype, MatrixLayout a, MatrixLayout b,
                                      const GemmEpilogue& epilogue);

/** @brief Along which axis neighbours of a matrix are side by side. */
inline MatrixLayout layout_of(const Tensor& x) {
  return x.strides()[1] == 1 ? MatrixLayout::row_major : MatrixLayout::column_major;
}

}  // namespace bs::cuda
