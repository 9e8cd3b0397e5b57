#include <bs/autograd/linear.h>

#include <bs/autograd/matmul.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/kernels/linear.h>

namespace bs {

namespace {

/// All rows of x [..., n] as a matrix.
Variable rows_of(const Variable& x) {
  const int64_t n = x.size(-1);
  return reshape(x, {n == 0 ? 0 : x.numel() / n, n});
}

struct Rule {
  SavedTensor x, weight;  ///< each where the other wants a gradient
  Shape shape;            ///< of x
  LinearWants wants;

  Grads operator()(const Tensor& dy) const {
    LinearGrads grads = linear_backward(x, weight, dy, wants);
    return {grads.x, grads.weight, grads.bias};
  }
  VariableGrads again(const Recorded& r) const {
    VariableGrads grads(3);
    const Variable dy = rows_of(r.dy());
    if (wants.x) grads[0] = reshape(matmul(dy, r.input(1, weight)), shape);
    if (wants.weight) grads[1] = matmul(transpose(dy, 0, 1), rows_of(r.input(0, x)));
    if (wants.bias) grads[2] = sum(dy, 0);
    return grads;
  }
};

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  const LinearWants wants{x.requires_grad(), weight.requires_grad(), bias.requires_grad()};
  const Tensor b = data_of(bias);
  return tape().record("linear", {x, weight, bias}, linear(x.data(), weight.data(), b),
                       Rule{saved_factor(x, weight), saved_factor(weight, x), x.shape(), wants});
}

}  // namespace bs
