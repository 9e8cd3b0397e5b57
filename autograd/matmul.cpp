#include <bs/autograd/matmul.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/matmul.h>

namespace bs {

Variable matmul(const Variable& a, const Variable& b) {
  return tape().record(
      "matmul", {a, b}, matmul(a.data(), b.data()),
      [a = SavedTensor(a.data()), b = SavedTensor(b.data()), wants_a = a.requires_grad(),
       wants_b = b.requires_grad()](const Tensor& dc) {
        return Grads{wants_a ? matmul_backward_a(a.shape(), b, dc) : Tensor(),
                     wants_b ? matmul_backward_b(a, b.shape(), dc) : Tensor()};
      });
}

}  // namespace bs
