#pragma once
/** @file Systems whose matrix is a Kronecker product of small factors, which is never formed.
 *
 *  K = W_N kron ... kron W_1 with square factors, f32 or f64; rows are those of kron_matmul. The
 * factors are inverted or decomposed one by one on the host (see inverse.h and eigh.h), which takes
 * sum(n_i^3) work. A row then costs what kron_matmul costs. */
#include <bs/kernels/kron.h>

namespace bs {

struct KronSolveOptions {
  KronOrder order = KronOrder::first_fastest;
  bool transposed = false;  ///< factors multiply as their transposes
};

/** @brief What kron_inverse computed. */
struct KronInverse {
  std::vector<Tensor> factors;  ///< inverses of the factors
  Tensor sign;                  ///< of the determinant of K: [], or [groups] for batched factors
  Tensor log_abs_det;           ///< log |det K|, likewise
};
/** @brief The inverse of K by its factors, and its determinant: the sum of K / n_i log |det W_i|.
 *  @param[in] factors each [n_i, n_i], or all [groups, n_i, n_i]
 *  @throws Error when a factor is singular or not square. A factor with a NaN makes the
 *  determinant NaN, and all of its inverse. */
KronInverse kron_inverse(const std::vector<Tensor>& factors);

/** @brief x with x K = b. It is b times the rounded inverse, so the relative error is about
 *  the precision times the condition numbers of the factors.
 *  @param[in] b [..., K], with batched factors [groups, ..., K]
 *  @throws Error when a factor is singular or not square, or rows do not fit. A factor with a NaN
 *  makes all of x NaN, as in torch.linalg.solve. */
Tensor kron_solve(const Tensor& b, const KronInverse& inverse,
                  const KronSolveOptions& options = {});
Tensor kron_solve(const Tensor& b, const std::vector<Tensor>& factors,
                  const KronSolveOptions& options = {});

/** @brief Gradients of kron_solve. */
struct KronSolveGrads {
  Tensor b;
  std::vector<Tensor> factors;
};
/** @brief db = dx K^-T, and dW_i those of kron_matmul at (x, -db).
 *  @param[in] x the solution */
KronSolveGrads kron_solve_backward(const Tensor& x, const std::vector<Tensor>& factors,
                                   const KronInverse& inverse, const Tensor& dx,
                                   const KronSolveOptions& options = {});
/** @brief Of log |det K|: dW_i = dy K / n_i W_i^-T. @param[in] dy as log_abs_det */
std::vector<Tensor> kron_logdet_backward(const KronInverse& inverse, const Tensor& dy);

/** @brief K = V diag(eigenvalues) V^T for symmetric factors, by factor. */
struct KronEigh {
  KronOrder order = KronOrder::first_fastest;
  std::vector<Tensor> values;   ///< [n_i] each
  std::vector<Tensor> vectors;  ///< [n_i, n_i] each
  Tensor eigenvalues;           ///< [K]: their products, in the order of a row's elements
};
/** @brief Decomposes symmetric factors [n_i, n_i], of which the lower triangles are read.
 *  @throws Error when a factor is not square, or an element there is not finite. */
KronEigh kron_eigh(const std::vector<Tensor>& factors, KronOrder order = KronOrder::first_fastest);

namespace detail {
/// kron_inverse() for the operation `op`, which errors name.
KronInverse kron_inverse(const char* op, const std::vector<Tensor>& factors);
}  // namespace detail

/** @brief x with x (K + shift I) = b: two products with factors, whatever the shift.
 *  @param[in] b [..., K]
 *  @param[in] shift one number, of b's dtype and on its device */
Tensor kron_shifted_solve(const Tensor& b, const KronEigh& eigh, const Tensor& shift);
/** @brief log det (K + shift I), []: the sum of log(eigenvalue + shift), NaN where one is negative.
 */
Tensor kron_shifted_logdet(const KronEigh& eigh, const Tensor& shift);

/** @brief Gradients of both; those of factors are symmetric. */
struct KronShiftedGrads {
  Tensor b;  ///< of the solution alone
  std::vector<Tensor> factors;
  Tensor shift;
};
/** @brief db = dx (K + shift I)^-1, dshift = -<x, db>, dW_i those of kron_matmul at (x, -db): no
 *  derivative of eigenvectors is needed. */
KronShiftedGrads kron_shifted_solve_backward(const Tensor& x, const std::vector<Tensor>& factors,
                                             const KronEigh& eigh, const Tensor& shift,
                                             const Tensor& dx);
/** @brief dW_i = V_i diag(c_i) V_i^T, c_i the sum over all other axes of dy / (eigenvalue + shift)
 *  times the eigenvalues of the other factors. */
KronShiftedGrads kron_shifted_logdet_backward(const KronEigh& eigh, const Tensor& shift,
                                              const Tensor& dy);

}  // namespace bs
