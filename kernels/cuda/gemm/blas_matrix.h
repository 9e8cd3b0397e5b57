#pragma once
/** @file Matrices as cuBLAS wants them described. */
#include <bs/kernels/math_mode.h>
#include <bs/lib/cuda/handles.h>
#include <bs/lib/tensor.h>

#include <compare>
#include <optional>

namespace bs::cuda {

/** @brief How to read a matrix that cuBLAS, for which columns lead, takes for its transpose. */
struct BlasMatrix {
  cublasOperation_t operation;  ///< N: rows are dense; T: columns are
  int64_t leading;              ///< elements from one row (column) to the next

  auto operator<=>(const BlasMatrix&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};

/** @brief The last two axes of x, where one of them is dense and the other does not overlap. */
inline std::optional<BlasMatrix> blas_matrix(const Tensor& x) {
  const int64_t rows = x.size(-2), columns = x.size(-1);
  const int64_t row_step = rows == 1 ? columns : x.strides()[-2];
  const int64_t column_step = columns == 1 ? rows : x.strides()[-1];
  if ((column_step == 1 || columns == 1) && row_step >= columns)
    return BlasMatrix{CUBLAS_OP_N, row_step};
  if ((row_step == 1 || rows == 1) && column_step >= rows)
    return BlasMatrix{CUBLAS_OP_T, column_step};
  return {};
}

inline cudaDataType_t blas_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

/** @brief Sums in f32, in f64 for f64; products of f32 in TF32 where the thread allows it. */
inline cublasComputeType_t blas_compute_type(DType dtype) {
  if (dtype == f32 && tf32_allowed()) return CUBLAS_COMPUTE_32F_FAST_TF32;
  return dtype == f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
}

}  // namespace bs::cuda
