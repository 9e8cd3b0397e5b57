#pragma once
/** @file Products of small blocks with their dense operand copied, so that lines read are long. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief A contiguous copy of matrices with their axes exchanged. */
Tensor turn(const Tensor& matrices, Stream stream);

/** @brief Whether what a block reads of B are lines as short as it, and `with_long_lines` mends
 * that. */
inline bool short_lines(const DsdProblem& p, const Tensor& b) {
  return p.b.col != 1 && b.transpose(-2, -1).is_contiguous();
}
inline bool short_lines(const SddProblem& p, const Tensor& b) {
  return p.b.col == 1 && p.b.row != 1 && b.is_contiguous();
}

/** @brief A product, and the B that it is of. */
template <class Problem>
struct WithOperand {
  Problem problem;
  Tensor b;
};

/** @brief The same with the columns, or for sdd the depth, along the lines of a copy of B. */
WithOperand<DsdProblem> with_long_lines(const DsdProblem& p, const Tensor& b, Stream stream);
WithOperand<SddProblem> with_long_lines(const SddProblem& p, const Tensor& b, Stream stream);

}  // namespace bs::cuda
