#pragma once
/** @file Differentiable functions of the tests' own, so that the tape's tests need no operation of
 *  the library. */
#include <bs/autograd/tape.h>
#include <bs/kernels/accumulate.h>
#include <bs/kernels/copy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>

#include <span>
#include <vector>

namespace bs::test {

using Values = std::vector<double>;

inline Values values(const Tensor& x) { return Reference::of(x).values; }

inline Variable leaf(std::initializer_list<double> list) {
  Reference r({static_cast<int64_t>(list.size())});
  r.values = list;
  return {r.tensor(f64, test_device()), true};
}

inline Tensor scaled(const Tensor& x, double factor) {
  Reference r = Reference::of(x);
  for (double& v : r.values) v *= factor;
  return r.tensor(x.dtype(), x.device());
}

inline Variable scale(const Variable& x, double factor) {
  return tape().record("scale", {x}, scaled(x.data(), factor),
                       [factor](const Tensor& dy) { return Grads{scaled(dy, factor)}; });
}

inline Variable add(const Variable& a, const Variable& b) {
  Tensor y = clone(a.data());
  accumulate(y, b.data());
  return tape().record("add", {a, b}, y, [](const Tensor& dy) { return Grads{dy, dy}; });
}

/** @brief Twice and three times x, by one record. */
inline std::vector<Variable> two_and_three(const Variable& x) {
  return tape().record_many("two_and_three", std::span(&x, 1),
                            {scaled(x.data(), 2), scaled(x.data(), 3)}, [](const Grads& dys) {
                              Tensor dx;
                              if (dys[0].defined()) dx = scaled(dys[0], 2);
                              if (!dys[1].defined()) return Grads{dx};
                              if (!dx.defined()) return Grads{scaled(dys[1], 3)};
                              accumulate(dx, scaled(dys[1], 3));
                              return Grads{dx};
                            });
}

inline Tensor seed(std::initializer_list<double> list) { return leaf(list).data(); }

}  // namespace bs::test
