#include <bs/autograd/matmul.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/kernels/matmul.h>

namespace bs {

namespace {

struct Rule {
  SavedTensor a, b;  ///< each where the other wants a gradient
  Shape a_shape, b_shape;
  bool wants_a, wants_b;

  Grads operator()(const Tensor& dc) const {
    return {wants_a ? matmul_backward_a(a_shape, b, dc) : Tensor(),
            wants_b ? matmul_backward_b(a, b_shape, dc) : Tensor()};
  }
  VariableGrads again(const Recorded& r) const {
    VariableGrads grads(2);
    if (wants_a) grads[0] = sum_to(matmul(r.dy(), transpose(r.input(1, b), -2, -1)), a_shape);
    if (wants_b) grads[1] = sum_to(matmul(transpose(r.input(0, a), -2, -1), r.dy()), b_shape);
    return grads;
  }
};

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  return tape().record("matmul", {a, b}, matmul(a.data(), b.data()),
                       Rule{saved_factor(a, b), saved_factor(b, a), a.shape(), b.shape(),
                            a.requires_grad(), b.requires_grad()});
}

}  // namespace bs
