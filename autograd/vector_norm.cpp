#include <bs/autograd/vector_norm.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/like.h>

#include <cmath>

namespace bs {

namespace {

struct Rule {
  SavedTensor x, y;
  double p;
  Axes axes;
  bool keepdim;

  Grads operator()(const Tensor& dy) const {
    return {vector_norm_backward(x, y, dy, p, axes, keepdim)};
  }
  /// dx = dy (|x| / y)^(p - 1) sign(x), and 0 where y is. Of p = 0, 1 and infinity all but dy is
  /// constant but for steps.
  VariableGrads again(const Recorded& r) const {
    const Tensor one = ones_like(y.get());
    if (p == 0 || p == 1 || std::isinf(p)) {
      const Variable slope = vector_norm_backward(x, y, one, p, axes, keepdim);
      return {sum_backward(x.shape(), r.dy(), axes, keepdim) * slope};
    }
    const Tensor none = eq(y.get(), 0);
    const Variable length = where(none, 1, r.y());
    const Variable scale = where(none, 0, r.dy() * pow(length, 1 - p));
    const Variable spread = sum_backward(x.shape(), scale, axes, keepdim);
    if (p == 2) return {spread * r.input()};
    return {spread * (pow(abs(r.input()), p - 2) * r.input())};
  }
};

}  // namespace

Variable vector_norm(const Variable& x, double p, const Axes& axes, bool keepdim) {
  const Tensor y = vector_norm(x.data(), p, axes, keepdim);
  return tape().record("vector_norm", {x}, y,
                       Rule{SavedTensor(x.data()), SavedTensor(y), p, axes, keepdim});
}

Variable logsumexp(const Variable& x, const Axes& axes, bool keepdim) {
  const Tensor y = logsumexp(x.data(), axes, keepdim);
  return tape().record(
      "logsumexp", {x}, y,
      Twice{[x = SavedTensor(x.data()), y = SavedTensor(y), axes, keepdim](const Tensor& dy) {
              return Grads{logsumexp_backward(x, y, dy, axes, keepdim)};
            },
            [axes, keepdim](const Recorded& r) {
              const Shape& shape = r.input().shape();
              const Variable share = exp(r.input() - sum_backward(shape, r.y(), axes, keepdim));
              return VariableGrads{sum_backward(shape, r.dy(), axes, keepdim) * share};
            }});
}

}  // namespace bs
