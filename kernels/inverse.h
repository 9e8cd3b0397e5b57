#pragma once
/** @file Inverses and determinants of small matrices. */
#include <bs/kernels/dispatch.h>

#include <string>

namespace bs {

/** @brief What inverse() computed. */
struct Inverse {
  Tensor matrix;       ///< [..., n, n], a's inverse
  Tensor sign;         ///< [...], of the determinant: 1 or -1
  Tensor log_abs_det;  ///< [...], log |det a|
};

/** @brief Inverses of square matrices, with their determinants, from LU with partial pivoting
 *  (Eigen's). Computed on the host in f64 and rounded once: on CUDA the call waits for `a`.
 *  Meant for matrices of at most some thousand rows: it takes 2 n^3 multiply-adds on one thread.
 *  A matrix with a NaN has NaN alone for its inverse, sign and logarithm, and no error.
 *  @param[in] a [..., n, n], f32 or f64, any strides, n > 0
 *  @throws Error when a matrix is singular, that is when its LU factors hold a pivot of 0. */
Inverse inverse(const Tensor& a);

namespace detail {
/// inverse() for the operation `op`; errors say which matrix "of" what it is, such as " of factor
/// 1".
Inverse inverse(const char* op, const std::string& of, const Tensor& a);
}  // namespace detail

namespace cpu {
/// a and inverse [count, n, n], sign and log_abs_det [count]: contiguous f64 on the host.
void inverse(const char* op, const std::string& of, const Tensor& a, const Tensor& inverse,
             const Tensor& sign, const Tensor& log_abs_det);
}  // namespace cpu

}  // namespace bs
