#include <bs/autograd/where.h>

#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {

/// The gradients of where(condition, a, b), for those of a and b that are wanted.
struct Rule {
  SavedTensor condition;
  Shape shape_a, shape_b;
  DType dtype_a, dtype_b;
  bool wants_a, wants_b;

  template <class T>
  T to_a(const T& dy) const {
    return cast(sum_to(where(condition.get(), dy, 0), shape_a), dtype_a);
  }
  template <class T>
  T to_b(const T& dy) const {
    return cast(sum_to(where(condition.get(), 0, dy), shape_b), dtype_b);
  }
  Grads operator()(const Tensor& dy) const {
    return {wants_a ? to_a(dy) : Tensor(), wants_b ? to_b(dy) : Tensor()};
  }
  VariableGrads again(const Recorded& r) const {
    return {wants_a ? to_a(r.dy()) : Variable(), wants_b ? to_b(r.dy()) : Variable()};
  }
};

/// The same of where(condition, a, number) or where(condition, number, a).
struct RuleOfOne {
  Rule both;
  bool is_a;

  Grads operator()(const Tensor& dy) const { return {is_a ? both.to_a(dy) : both.to_b(dy)}; }
  VariableGrads again(const Recorded& r) const {
    return {is_a ? both.to_a(r.dy()) : both.to_b(r.dy())};
  }
};

}  // namespace

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  return tape().record("where", {a, b}, where(condition, a.data(), b.data()),
                       Rule{SavedTensor(condition), a.shape(), b.shape(), a.dtype(), b.dtype(),
                            a.requires_grad(), b.requires_grad()});
}

Variable where(const Tensor& condition, const Variable& a, Scalar b) {
  return tape().record(
      "where", {a}, where(condition, a.data(), b),
      RuleOfOne{{SavedTensor(condition), a.shape(), {}, a.dtype(), {}, true, false}, true});
}

Variable where(const Tensor& condition, Scalar a, const Variable& b) {
  return tape().record(
      "where", {b}, where(condition, a, b.data()),
      RuleOfOne{{SavedTensor(condition), {}, b.shape(), {}, b.dtype(), false, true}, false});
}

}  // namespace bs
