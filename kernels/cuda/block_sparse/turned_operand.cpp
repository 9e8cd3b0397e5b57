#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/block_sparse/turned_operand.h>

#include <utility>

namespace bs::cuda {

Tensor turn(const Tensor& matrices, Stream stream) {
  Shape shape = matrices.shape();
  std::swap(shape[-1], shape[-2]);
  Tensor out = Tensor::empty(shape, matrices.dtype(), matrices.device());
  copy(matrices.transpose(-2, -1), out, stream);
  return out;
}

WithOperand<DsdProblem> with_long_lines(const DsdProblem& p, const Tensor& b, Stream stream) {
  WithOperand<DsdProblem> out{p, turn(b.transpose(-2, -1), stream)};
  out.problem.b = {.row = p.n, .col = 1};
  return out;
}

WithOperand<SddProblem> with_long_lines(const SddProblem& p, const Tensor& b, Stream stream) {
  WithOperand<SddProblem> out{p, turn(b, stream).transpose(-2, -1)};
  out.problem.b = {.row = 1, .col = p.k};
  return out;
}

}  // namespace bs::cuda
