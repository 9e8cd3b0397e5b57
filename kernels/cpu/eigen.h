#pragma once
/** @file Matrices of tensors as Eigen sees them. Included by its users' .cpp files alone. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 on its own AVX-512 header
#endif
#if BS_SANITIZED  // compiling its vectors takes half a minute a file then, and warns as above
#define EIGEN_DONT_VECTORIZE
#endif
#define EIGEN_DONT_PARALLELIZE  // it would make teams of threads of its own
#include <bs/lib/tensor.h>

#include <Eigen/Dense>

namespace bs::cpu {

using EigenMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Matrix `index` of a contiguous f64 [count, n, n].
inline Eigen::Map<EigenMatrix> matrix_of(const Tensor& t, int64_t index) {
  const int64_t n = t.size(2);
  return {t.data<double>() + index * n * n, n, n};
}

}  // namespace bs::cpu
