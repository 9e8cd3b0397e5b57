#include <bs/kernels/eigh.h>

#include <bs/kernels/cpu/eigen.h>

#include <Eigen/Eigenvalues>

namespace bs::cpu {

void eigh(const char* op, const std::string& of, const Tensor& a, const Tensor& values,
          const Tensor& vectors) {
  const int64_t n = a.size(2);
  for (int64_t i = 0; i < a.size(0); ++i) {
    const auto matrix = matrix_of(a, i);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c <= r; ++c)
        BS_CHECK(std::isfinite(matrix(r, c)), "{}: element [{}, {}] of matrix {}{} is {}", op, r, c,
                 i, of, matrix(r, c));
    const Eigen::SelfAdjointEigenSolver<EigenMatrix> solver(matrix);
    BS_CHECK(solver.info() == Eigen::Success, "{}: matrix {}{} of {} rows did not converge", op, i,
             of, n);
    Eigen::Map<Eigen::VectorXd>(values.data<double>() + i * n, n) = solver.eigenvalues();
    matrix_of(vectors, i) = solver.eigenvectors();
  }
}

}  // namespace bs::cpu
