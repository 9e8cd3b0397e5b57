#include <bs/kernels/eigh.h>

#include <bs/kernels/cpu/eigen.h>

#include <Eigen/Eigenvalues>

namespace bs::cpu {

void eigh(const Tensor& a, const Tensor& values, const Tensor& vectors) {
  const int64_t n = a.size(2);
  for (int64_t i = 0; i < a.size(0); ++i) {
    const auto matrix = matrix_of(a, i);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c <= r; ++c)
        BS_CHECK(std::isfinite(matrix(r, c)), "eigh: element [{}, {}] of matrix {} is {}", r, c, i,
                 matrix(r, c));
    const Eigen::SelfAdjointEigenSolver<EigenMatrix> solver(matrix);
    BS_CHECK(solver.info() == Eigen::Success, "eigh: matrix {} of {} rows did not converge", i, n);
    Eigen::Map<Eigen::VectorXd>(values.data<double>() + i * n, n) = solver.eigenvalues();
    matrix_of(vectors, i) = solver.eigenvectors();
  }
}

}  // namespace bs::cpu
