#include <bs/kernels/cuda/kron/kron_library.h>

namespace bs::cuda {

void kron_plan(const std::vector<KronAxis>& axes, DType, bool, KronPlan& plan, Stream) {
  plan.passes.assign(axes.size(), 1);
}

void kron_pass(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias,
               Activation activation, const Tensor& before, const Tensor& y, Stream stream) {
  kron_library_step(x, factors.front(), y, stream);
  kron_library_finish(bias, activation, before, y, stream);
}

void kron_pass_backward(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& dy,
                        const Tensor& dx, const std::vector<Tensor>& dfactors, Stream stream) {
  if (dfactors.front().defined()) kron_library_contract(x, dy, dfactors.front(), stream);
  if (dx.defined()) kron_library_step(dy, factors.front().transpose(1, 2), dx, stream);
}

}  // namespace bs::cuda
