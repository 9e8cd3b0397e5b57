// Gradients of gradients of functions of elements, and of their reductions.
#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/dropout.h>
#include <bs/autograd/elementary.h>
#include <bs/autograd/grad.h>
#include <bs/autograd/rectifier.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/rounding.h>
#include <bs/autograd/scan.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/vector_norm.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>
#include <bs/tests/support/check_twice.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

Variable leaf(std::initializer_list<double> values) {
  return Variable(Tensor::from(values).to(test_device()), true);
}
std::vector<double> of(const Variable& x) { return Reference::of(x.data()).values; }

}  // namespace

TEST_CASE("second derivatives: functions of one element") {
  const Variable x = random_leaf({3, 5}, 1), p = positive({3, 5}, 2);
  check_one(
      "neg", [](const Variable& v) { return -v; }, x);
  check_one(
      "abs", [](const Variable& v) { return abs(v) * v; }, x);
  check_one(
      "exp", [](const Variable& v) { return exp(v); }, x);
  check_one(
      "log", [](const Variable& v) { return log(v); }, p);
  check_one(
      "sqrt", [](const Variable& v) { return sqrt(v); }, p);
  check_one(
      "rsqrt", [](const Variable& v) { return rsqrt(v); }, p);
  check_one(
      "reciprocal", [](const Variable& v) { return reciprocal(v); }, p);
  check_one(
      "clamp", [](const Variable& v) { return clamp(v, -0.4, 0.5) * v; }, x);
  check_one(
      "sin", [](const Variable& v) { return sin(v); }, x);
  check_one(
      "cos", [](const Variable& v) { return cos(v); }, x);
  check_one(
      "tan", [](const Variable& v) { return tan(v); }, x);
  check_one(
      "erf", [](const Variable& v) { return erf(v); }, x);
  check_one(
      "log1p", [](const Variable& v) { return log1p(v); }, p);
  check_one(
      "expm1", [](const Variable& v) { return expm1(v); }, x);
  check_one(
      "floor", [](const Variable& v) { return floor(v * 3) * v; }, x);
  check_one(
      "remainder", [](const Variable& v) { return remainder(v, 0.7) * v; }, x);
}

TEST_CASE("second derivatives: activations, and dropout") {
  const Variable x = random_leaf({3, 5}, 1), wide = random_leaf({41}, 3, -4, 4);
  check_one(
      "tanh", [](const Variable& v) { return tanh(v); }, x);
  check_one(
      "sigmoid", [](const Variable& v) { return sigmoid(v); }, x);
  check_one(
      "relu", [](const Variable& v) { return relu(v) * v; }, x);
  check_one(
      "gelu", [](const Variable& v) { return gelu(v); }, wide);
  check_one(
      "gelu tanh", [](const Variable& v) { return gelu(v, Gelu::tanh); }, wide);
  check_one(
      "silu", [](const Variable& v) { return silu(v); }, wide);
  check_one(
      "leaky_relu", [](const Variable& v) { return leaky_relu(v, 0.1) * v; }, x);
  check_one(
      "elu", [](const Variable& v) { return elu(v, 1.5); }, wide);
  check_one(
      "softplus", [](const Variable& v) { return softplus(v, 2); }, wide);
  check_one(
      "mish", [](const Variable& v) { return mish(v); }, wide);
  check_one(
      "hardswish", [](const Variable& v) { return hardswish(v); }, wide);
  check_one(
      "glu", [](const Variable& v) { return glu(v, 0); }, random_leaf({4, 3}, 4));
  check_one(
      "dropout",
      [](const Variable& v) {
        Generator same(5);
        return dropout(v, 0.5, same) * v;
      },
      x);
  for (const Activation f : {Activation::relu, Activation::gelu})
    check_one(
        "activation_dropout of what nothing else saves",
        [f](const Variable& v) {
          Generator same(5);
          return activation_dropout(v * 2, f, 0.5, same) * v;
        },
        x);
}

TEST_CASE("second derivatives: functions of two elements, with broadcasting") {
  const Variable a = random_leaf({3, 4}, 1), b = random_leaf({4}, 2),
                 column = random_leaf({3, 1}, 3);
  const Variable p = positive({3, 4}, 4), q = positive({4}, 5);
  check_two(
      "add", [](const auto& u, const auto& v) { return (u + v) * u; }, a, b);
  check_two(
      "sub", [](const auto& u, const auto& v) { return (u - v) * v; }, a, column);
  check_two(
      "mul", [](const auto& u, const auto& v) { return u * v; }, b, column);
  check_two(
      "div", [](const auto& u, const auto& v) { return u / v; }, a, q);
  check_two(
      "pow", [](const auto& u, const auto& v) { return pow(u, v); }, p, b);
  check_two(
      "minimum", [](const auto& u, const auto& v) { return minimum(u, v) * v; }, a, b);
  check_two(
      "maximum", [](const auto& u, const auto& v) { return maximum(u, v) * u; }, a, b);
  check_one(
      "numbers", [](const Variable& v) { return (2 - v) * (v + 1) / 3 * 4 - 5; }, a);
  check_one(
      "one over", [](const Variable& v) { return 2 / v; }, p);
  check_one(
      "cube", [](const Variable& v) { return pow(v, 3); }, a);
  check_one(
      "to the power of 0", [](const Variable& v) { return pow(v, 0) * v * v; }, a);
  check_one(
      "power of a number", [](const Variable& v) { return pow(1.7, v); }, a);
  check_one(
      "minimum of a number", [](const Variable& v) { return minimum(v, 0.2) * v; }, a);
  check_one(
      "maximum of a number", [](const Variable& v) { return maximum(v, -0.2) * v; }, a);
  const Tensor condition = gt(a.data(), 0.1);
  check_two(
      "where", [&](const auto& u, const auto& v) { return where(condition, u * u, v * v); }, a, b);
  check_one(
      "where a number", [&](const Variable& v) { return where(condition, v * v, 3); }, a);
  check_one(
      "where else", [&](const Variable& v) { return where(condition, 3, v * v); }, a);
  // The base is 0, and so is the exponent.
  const Variable zero = leaf({0, 0, 2}), none = leaf({0, 2, 0});
  const VariableGrads slopes = differentiable_grad({sum(pow(zero, none))}, {zero, none});
  CHECK(of(slopes[0]) == std::vector<double>{0, 0, 0});
  CHECK(of(slopes[1])[1] == 0);
  CHECK(std::isfinite(of(differentiable_grad(sum(slopes[1]), none))[1]));
}

TEST_CASE("second derivatives: reductions and scans") {
  const Variable x = random_leaf({3, 4, 5}, 1), p = positive({3, 4, 5}, 2);
  for (const bool keepdim : {false, true}) {
    const Axes axes = Dims{0, 2};
    check_one(
        "sum", [&](const Variable& v) { return sum(v * v, axes, keepdim); }, x);
    check_one(
        "mean", [&](const Variable& v) { return mean(v * v, axes, keepdim); }, x);
    check_one(
        "var", [&](const Variable& v) { return var(v, axes, keepdim); }, x);
    check_one(
        "var of all", [&](const Variable& v) { return var(v, {}, keepdim, 0); }, x);
    check_one(
        "stddev", [&](const Variable& v) { return stddev(v, axes, keepdim); }, x);
    check_one(
        "amax", [&](const Variable& v) { return amax(v * v, axes, keepdim); }, x);
    check_one(
        "amin", [&](const Variable& v) { return amin(v * v, axes, keepdim); }, x);
    check_one(
        "logsumexp", [&](const Variable& v) { return logsumexp(v, axes, keepdim); }, x);
    for (const double power : {1., 2., 3., 1.5, HUGE_VAL})
      check_one(
          "vector_norm",
          [&](const Variable& v) { return vector_norm(v * v, power, axes, keepdim); }, p);
  }
  check_one(
      "cumsum", [](const Variable& v) { return cumsum(v * v, 1); }, x);
  check_one(
      "sum_to",
      [](const Variable& v) {
        return sum_to(v * v, {4, 1});
      },
      x);
}
