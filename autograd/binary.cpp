#include <bs/autograd/binary.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/unary.h>

namespace bs {

namespace {

/// What a backward needs to know of an operand to shape its gradient.
struct Target {
  bool wanted;
  Shape shape;
  DType dtype;

  explicit Target(const Variable& v)
      : wanted(v.requires_grad()), shape(v.shape()), dtype(v.dtype()) {}

  /// The gradient for the operand, from one of the result's shape and dtype.
  Tensor operator()(const Tensor& gradient) const { return cast(sum_to(gradient, shape), dtype); }
};

/// Records y = op(a, b) whose gradients for a and b are `backward_a` and `backward_b` of dy.
template <class BackwardA, class BackwardB>
Variable record(const char* name, const Variable& a, const Variable& b, Tensor y,
                BackwardA backward_a, BackwardB backward_b) {
  return tape().record(
      name, {a, b}, std::move(y),
      [to_a = Target(a), to_b = Target(b), backward_a, backward_b](const Tensor& dy) {
        return Grads{to_a.wanted ? to_a(backward_a(dy)) : Tensor(),
                     to_b.wanted ? to_b(backward_b(dy)) : Tensor()};
      });
}

/// The same for an operation with one tensor and a number.
template <class Backward>
Variable record(const char* name, const Variable& x, Tensor y, Backward backward) {
  return tape().record(name, {x}, std::move(y), [to = Target(x), backward](const Tensor& dy) {
    return Grads{to(backward(dy))};
  });
}

Tensor pass(const Tensor& dy) { return dy; }

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  return record("add", a, b, add(a.data(), b.data()), pass, pass);
}

Variable add(const Variable& a, Scalar b) { return record("add", a, add(a.data(), b), pass); }

Variable sub(const Variable& a, const Variable& b) {
  return record("sub", a, b, sub(a.data(), b.data()), pass, [](const Tensor& dy) { return -dy; });
}

Variable sub(const Variable& a, Scalar b) { return record("sub", a, sub(a.data(), b), pass); }

Variable sub(Scalar a, const Variable& b) {
  return record("sub", b, sub(a, b.data()), [](const Tensor& dy) { return -dy; });
}

Variable mul(const Variable& a, const Variable& b) {
  // Each operand is saved for the other's sake.
  const SavedTensor p(b.requires_grad() ? a.data() : Tensor());
  const SavedTensor q(a.requires_grad() ? b.data() : Tensor());
  return record(
      "mul", a, b, mul(a.data(), b.data()), [q](const Tensor& dy) { return dy * q; },
      [p](const Tensor& dy) { return dy * p; });
}

Variable mul(const Variable& a, Scalar b) {
  return record("mul", a, mul(a.data(), b), [b](const Tensor& dy) { return dy * b; });
}

Variable div(const Variable& a, const Variable& b) {
  const SavedTensor p(b.requires_grad() ? a.data() : Tensor());
  const SavedTensor q(b.data());
  return record(
      "div", a, b, div(a.data(), b.data()), [q](const Tensor& dy) { return dy / q; },
      [p, q](const Tensor& dy) { return div_backward_b(p.get(), q, dy); });
}

Variable div(const Variable& a, Scalar b) {
  return record("div", a, div(a.data(), b), [b](const Tensor& dy) { return dy / b; });
}

Variable div(Scalar a, const Variable& b) {
  return record("div", b, div(a, b.data()), [a, q = SavedTensor(b.data())](const Tensor& dy) {
    return div_backward_b(a, q, dy);
  });
}

Variable pow(const Variable& a, const Variable& b) {
  const SavedTensor p(a.data());
  const SavedTensor q(b.data());
  return record(
      "pow", a, b, pow(p, q), [p, q](const Tensor& dy) { return pow_backward_a(p, q.get(), dy); },
      [p, q](const Tensor& dy) { return pow_backward_b(p.get(), q, dy); });
}

Variable pow(const Variable& a, Scalar b) {
  return record("pow", a, pow(a.data(), b), [p = SavedTensor(a.data()), b](const Tensor& dy) {
    return pow_backward_a(p, b, dy);
  });
}

Variable pow(Scalar a, const Variable& b) {
  return record("pow", b, pow(a, b.data()), [a, q = SavedTensor(b.data())](const Tensor& dy) {
    return pow_backward_b(a, q, dy);
  });
}

Variable minimum(const Variable& a, const Variable& b) {
  const SavedTensor p(a.data());
  const SavedTensor q(b.data());
  return record(
      "minimum", a, b, minimum(p, q),
      [p, q](const Tensor& dy) { return minimum_backward(p, q.get(), dy); },
      [p, q](const Tensor& dy) { return minimum_backward(q, p.get(), dy); });
}

Variable minimum(const Variable& a, Scalar b) {
  return record(
      "minimum", a, minimum(a.data(), b),
      [p = SavedTensor(a.data()), b](const Tensor& dy) { return minimum_backward(p, b, dy); });
}

Variable maximum(const Variable& a, const Variable& b) {
  const SavedTensor p(a.data());
  const SavedTensor q(b.data());
  return record(
      "maximum", a, b, maximum(p, q),
      [p, q](const Tensor& dy) { return maximum_backward(p, q.get(), dy); },
      [p, q](const Tensor& dy) { return maximum_backward(q, p.get(), dy); });
}

Variable maximum(const Variable& a, Scalar b) {
  return record(
      "maximum", a, maximum(a.data(), b),
      [p = SavedTensor(a.data()), b](const Tensor& dy) { return maximum_backward(p, b, dy); });
}

}  // namespace bs
