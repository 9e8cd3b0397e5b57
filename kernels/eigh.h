#pragma once
/** @file Eigenvalues and eigenvectors of small symmetric matrices. */
#include <bs/kernels/dispatch.h>

#include <string>

namespace bs {

/** @brief a = vectors diag(values) vectors^T. */
struct Eigh {
  Tensor values;   ///< [..., n], ascending
  Tensor vectors;  ///< [..., n, n], orthonormal columns
};

/** @brief Eigenvalues and eigenvectors of symmetric matrices, by Householder's tridiagonal form and
 *  implicit QR (Eigen's). Reads the lower triangle alone. Computed on the host in f64 and rounded
 *  once: on CUDA the call waits for `a`. It takes about 9 n^3 multiply-adds on one thread.
 *  @param[in] a [..., n, n], f32 or f64, any strides, n > 0
 *  @throws Error when an element of the lower triangle is not finite. */
Eigh eigh(const Tensor& a);

namespace detail {
/// eigh() for the operation `op`; errors say which matrix "of" what it is, such as " of factor 1".
Eigh eigh(const char* op, const std::string& of, const Tensor& a);
}  // namespace detail

namespace cpu {
/// a and vectors [count, n, n], values [count, n]: contiguous f64 on the host.
void eigh(const char* op, const std::string& of, const Tensor& a, const Tensor& values,
          const Tensor& vectors);
}  // namespace cpu

}  // namespace bs
