#include <bs/kernels/inverse.h>

#include <bs/kernels/cpu/eigen.h>

#include <Eigen/LU>
#include <cmath>
#include <limits>

namespace bs::cpu {

void inverse(const char* op, const std::string& of, const Tensor& a, const Tensor& inverse,
             const Tensor& sign, const Tensor& log_abs_det) {
  for (int64_t i = 0; i < a.size(0); ++i) {
    // The search for pivots passes NaN over, or takes it for 0.
    if (matrix_of(a, i).hasNaN()) {
      constexpr double nan = std::numeric_limits<double>::quiet_NaN();
      matrix_of(inverse, i).setConstant(nan);
      sign.data<double>()[i] = log_abs_det.data<double>()[i] = nan;
      continue;
    }
    const Eigen::PartialPivLU<EigenMatrix> lu(matrix_of(a, i));
    const auto pivots = lu.matrixLU().diagonal();
    double negative = lu.permutationP().determinant() < 0, sum = 0;
    for (Eigen::Index k = 0; k < pivots.size(); ++k) {
      BS_CHECK(pivots[k] != 0, "{}: matrix {} of {}{} is singular: pivot {} of {} is 0", op, i,
               a.size(0), of, k, pivots.size());
      negative += pivots[k] < 0;
      sum += std::log(std::abs(pivots[k]));
    }
    matrix_of(inverse, i) = lu.inverse();
    sign.data<double>()[i] = std::fmod(negative, 2) == 0 ? 1 : -1;
    log_abs_det.data<double>()[i] = sum;
  }
}

}  // namespace bs::cpu
