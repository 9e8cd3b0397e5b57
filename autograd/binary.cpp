#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/where.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/unary.h>

#include <cmath>

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
  template <class T>
  T operator()(const T& gradient) const {
    return cast(sum_to(gradient, shape), dtype);
  }
};

/// The gradients of y = op(a, b): those for a and b on tensors, of dy, and recorded, of a Recorded.
template <class A, class B, class AgainA, class AgainB>
struct Rule {
  Target to_a, to_b;
  A a;
  B b;
  AgainA again_a;
  AgainB again_b;

  Grads operator()(const Tensor& dy) const {
    return {to_a.wanted ? to_a(a(dy)) : Tensor(), to_b.wanted ? to_b(b(dy)) : Tensor()};
  }
  VariableGrads again(const Recorded& r) const {
    return {r.wants(0) ? to_a(again_a(r)) : Variable(), r.wants(1) ? to_b(again_b(r)) : Variable()};
  }
};

template <class A, class B, class AgainA, class AgainB>
Variable record(const char* name, const Variable& a, const Variable& b, Tensor y, A backward_a,
                B backward_b, AgainA again_a, AgainB again_b) {
  return tape().record(
      name, {a, b}, std::move(y),
      Rule<A, B, AgainA, AgainB>{Target(a), Target(b), backward_a, backward_b, again_a, again_b});
}

/// The same for an operation with one tensor and a number.
template <class A, class Again>
struct RuleOfOne {
  Target to;
  A a;
  Again again_a;

  Grads operator()(const Tensor& dy) const { return {to(a(dy))}; }
  VariableGrads again(const Recorded& r) const { return {to(again_a(r))}; }
};

template <class A, class Again>
Variable record(const char* name, const Variable& x, Tensor y, A backward, Again again) {
  return tape().record(name, {x}, std::move(y), RuleOfOne<A, Again>{Target(x), backward, again});
}

constexpr auto pass = [](const Tensor& dy) { return dy; };
constexpr auto turn = [](const Tensor& dy) { return -dy; };
constexpr auto pass_again = [](const Recorded& r) { return r.dy(); };
constexpr auto turn_again = [](const Recorded& r) { return -r.dy(); };

/// The same map again, of a backward that only chooses: `name` with dy in the place of x.
template <class Choose>
auto chosen_again(const char* name, Choose choose) {
  return [name, choose](const Recorded& r) { return record_self_adjoint(name, r.dy(), choose); };
}

/// a^b log a, which is 0 where a is.
Variable times_log(const Variable& y, const Variable& a) {
  const Tensor zero = eq(a.data(), 0);
  return where(zero, 0, y * log(where(zero, 1, a)));
}

/// b a^(b - 1), which is 0 where b is.
Variable slope_of_pow(const Variable& a, const Variable& b) {
  return where(eq(b.data(), 0), 0, b * pow(a, b - 1));
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  return record("add", a, b, add(a.data(), b.data()), pass, pass, pass_again, pass_again);
}

Variable add(const Variable& a, Scalar b) {
  return record("add", a, add(a.data(), b), pass, pass_again);
}

Variable sub(const Variable& a, const Variable& b) {
  return record("sub", a, b, sub(a.data(), b.data()), pass, turn, pass_again, turn_again);
}

Variable sub(const Variable& a, Scalar b) {
  return record("sub", a, sub(a.data(), b), pass, pass_again);
}

Variable sub(Scalar a, const Variable& b) {
  return record("sub", b, sub(a, b.data()), turn, turn_again);
}

Variable mul(const Variable& a, const Variable& b) {
  // Each operand is saved for the other's sake.
  const SavedTensor p(b.requires_grad() ? a.data() : Tensor());
  const SavedTensor q(a.requires_grad() ? b.data() : Tensor());
  return record(
      "mul", a, b, mul(a.data(), b.data()), [q](const Tensor& dy) { return dy * q; },
      [p](const Tensor& dy) { return dy * p; },
      [q](const Recorded& r) { return r.dy() * r.input(1, q); },
      [p](const Recorded& r) { return r.dy() * r.input(0, p); });
}

Variable mul(const Variable& a, Scalar b) {
  return record(
      "mul", a, mul(a.data(), b), [b](const Tensor& dy) { return dy * b; },
      [b](const Recorded& r) { return r.dy() * b; });
}

Variable div(const Variable& a, const Variable& b) {
  const SavedTensor p(b.requires_grad() ? a.data() : Tensor());
  const SavedTensor q(b.data());
  return record(
      "div", a, b, div(a.data(), b.data()), [q](const Tensor& dy) { return dy / q; },
      [p, q](const Tensor& dy) { return div_backward_b(p.get(), q, dy); },
      [q](const Recorded& r) { return r.dy() / r.input(1, q); },
      [p](const Recorded& r) { return -r.dy() * r.input(0, p) / (r.input(1) * r.input(1)); });
}

Variable div(const Variable& a, Scalar b) {
  return record(
      "div", a, div(a.data(), b), [b](const Tensor& dy) { return dy / b; },
      [b](const Recorded& r) { return r.dy() / b; });
}

Variable div(Scalar a, const Variable& b) {
  return record(
      "div", b, div(a, b.data()),
      [a, q = SavedTensor(b.data())](const Tensor& dy) { return div_backward_b(a, q, dy); },
      [a](const Recorded& r) { return r.dy() * a / (-r.input() * r.input()); });
}

Variable pow(const Variable& a, const Variable& b) {
  const SavedTensor p(a.data());
  const SavedTensor q(b.data());
  return record(
      "pow", a, b, pow(p, q), [p, q](const Tensor& dy) { return pow_backward_a(p, q.get(), dy); },
      [p, q](const Tensor& dy) { return pow_backward_b(p.get(), q, dy); },
      [q](const Recorded& r) { return r.dy() * slope_of_pow(r.input(0), r.input(1, q)); },
      [p, q](const Recorded& r) {
        const Variable base = r.input(0, p);
        return r.dy() * times_log(pow(base, r.input(1, q)), base);
      });
}

Variable pow(const Variable& a, Scalar b) {
  return record(
      "pow", a, pow(a.data(), b),
      [p = SavedTensor(a.data()), b](const Tensor& dy) { return pow_backward_a(p, b, dy); },
      [b](const Recorded& r) {
        const double power = b.to<double>();
        return power == 0 ? r.dy() * 0 : r.dy() * (pow(r.input(), power - 1) * power);
      });
}

Variable pow(Scalar a, const Variable& b) {
  return record(
      "pow", b, pow(a, b.data()),
      [a, q = SavedTensor(b.data())](const Tensor& dy) { return pow_backward_b(a, q, dy); },
      [a](const Recorded& r) {
        const double base = a.to<double>();
        return base == 0 ? r.dy() * 0 : r.dy() * (pow(a, r.input()) * std::log(base));
      });
}

Variable minimum(const Variable& a, const Variable& b) {
  const SavedTensor p(a.data());
  const SavedTensor q(b.data());
  const auto to_a = [p, q](const Tensor& dy) { return minimum_backward(p, q.get(), dy); };
  const auto to_b = [p, q](const Tensor& dy) { return minimum_backward(q, p.get(), dy); };
  return record("minimum", a, b, minimum(p, q), to_a, to_b, chosen_again("minimum", to_a),
                chosen_again("minimum", to_b));
}

Variable minimum(const Variable& a, Scalar b) {
  const auto to_a = [p = SavedTensor(a.data()), b](const Tensor& dy) {
    return minimum_backward(p, b, dy);
  };
  return record("minimum", a, minimum(a.data(), b), to_a, chosen_again("minimum", to_a));
}

Variable maximum(const Variable& a, const Variable& b) {
  const SavedTensor p(a.data());
  const SavedTensor q(b.data());
  const auto to_a = [p, q](const Tensor& dy) { return maximum_backward(p, q.get(), dy); };
  const auto to_b = [p, q](const Tensor& dy) { return maximum_backward(q, p.get(), dy); };
  return record("maximum", a, b, maximum(p, q), to_a, to_b, chosen_again("maximum", to_a),
                chosen_again("maximum", to_b));
}

Variable maximum(const Variable& a, Scalar b) {
  const auto to_a = [p = SavedTensor(a.data()), b](const Tensor& dy) {
    return maximum_backward(p, b, dy);
  };
  return record("maximum", a, maximum(a.data(), b), to_a, chosen_again("maximum", to_a));
}

}  // namespace bs
