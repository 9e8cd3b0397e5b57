#pragma once
/** @file Whether operands fall into vectors of 16 bytes, which kernels read and write at a time. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/lib/tensor.h>

#include <cstdint>

namespace bs::cuda {

inline bool aligned_to_16(const Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
}

/** @brief Elements of a vector. */
inline int vector_of(DType dtype) { return 16 / static_cast<int>(size_of(dtype)); }

/** @brief Whether every step of tensor `n` over the loop is a multiple of `vector` elements. */
template <int N>
bool steps_in(const StridedLoop<N>& loop, int n, int vector) {
  for (int axis = 0; axis < loop.rank; ++axis)
    if (loop.strides[n][axis] % vector != 0) return false;
  return true;
}

/** @brief Whether lines of `length` elements, one after the other in memory, fall into vectors. */
inline bool whole_vectors(const MatrixStrides& strides, bool by_rows, int64_t length, int vector) {
  return (by_rows ? strides.row : strides.col) % vector == 0 && length % vector == 0;
}

}  // namespace bs::cuda
