#include <bs/autograd/binary.h>
#include <bs/autograd/grad.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/softmax.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

using Variables = std::vector<Variable>;

Variable leaf(const Shape& shape, uint64_t seed) {
  return {random_reference(shape, seed).tensor(f64, test_device()), true};
}

Tensor map(const Tensor& x, double (*f)(double)) {
  Reference r = Reference::of(x);
  for (double& v : r.values) v = f(v);
  return r.tensor(x.dtype(), x.device());
}

Tensor product(const Tensor& a, const Tensor& b) {
  Reference r = Reference::of(a);
  const Reference other = Reference::of(b);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] *= other[i];
  return r.tensor(a.dtype(), a.device());
}

// A differentiable function of one's own: compute, then tell the tape how to go back.
// [custom function]
Variable sine(const Variable& x) {
  return tape().record("sine", {x}, map(x.data(), std::sin), [x = x.data()](const Tensor& dy) {
    return Grads{product(dy, map(x, std::cos))};
  });
}
// [custom function]

/// Wrong by a factor of 1.001 at the last element.
Variable nearly_sine(const Variable& x) {
  return tape().record("nearly_sine", {x}, map(x.data(), std::sin),
                       [x = x.data()](const Tensor& dy) {
                         Reference dx = Reference::of(product(dy, map(x, std::cos)));
                         dx.values.back() *= 1.001;
                         return Grads{dx.tensor(f64, x.device())};
                       });
}

}  // namespace

TEST_CASE("gradcheck: a custom function, entry by entry and by projections") {
  const auto f = [](const Variables& v) { return sine(v[0]); };
  const GradCheckEntry full = gradcheck(f, {leaf({3, 4}, 1)});
  CHECK(full.input == 0);
  CHECK(full.output >= 0);
  CHECK(full.error <= 1e-8);
  const GradCheckEntry projected = gradcheck(f, {leaf({3, 4}, 1)}, {.full = 0});
  CHECK(projected.output == -1);
  CHECK(projected.error <= 1e-8);
  gradcheck(f, {leaf({100, 100}, 1)});
}

TEST_CASE("gradcheck: a softmax of the library") {
  gradcheck([](const Variables& v) { return softmax(v[0]); }, {leaf({2, 5}, 2)});
}

TEST_CASE("gradcheck: a function of gradients, and a thread that records nothing") {
  const auto f = [](const Variables& v) {
    const Variable slope = differentiable_grad(sum(v[0] * v[0] * v[0]), v[0]);
    return sum(slope * slope);
  };
  CHECK(gradcheck(f, {leaf({3}, 5)}).input == 0);
  CHECK(gradcheck(f, {leaf({3}, 5)}, {.full = 0}).input == 0);
  const NoGrad no_grad;
  CHECK(gradcheck([](const Variables& v) { return sine(v[0]); }, {leaf({3}, 5)}).input == 0);
  CHECK(!grad_enabled());
}

TEST_CASE("gradcheck: no function is an error") {
  CHECK_THROWS_WITH_AS(gradcheck(nullptr, {leaf({3}, 5)}),
                       "gradcheck: there is no function to call", Error);
}

TEST_CASE("gradcheck: finds a gradient that is slightly wrong") {
  const auto f = [](const Variables& v) { return nearly_sine(v[0]); };
  const Variable x(zeros({3}, f64, test_device()), true);
  CHECK_THROWS_WITH_AS(
      gradcheck(f, {x}),
      doctest::Contains("gradcheck: the gradient of input 0 at element 2 from element 2 of the "
                        "output is 1.001, differences give 1"),
      Error);
  CHECK_THROWS_WITH_AS(gradcheck(f, {x}, {.full = 0}),
                       doctest::Contains("gradcheck: the gradient of input 0 along projection"),
                       Error);
}

TEST_CASE("gradcheck: finds a gradient that never comes, and one that is not a number") {
  const auto blind = [](const Variables& v) { return Variable(map(v[0].data(), std::sin)); };
  CHECK_THROWS_AS(gradcheck(blind, {leaf({2}, 1)}), Error);
  const auto nan = [](const Variables& v) {
    return tape().record("nan", {v[0]}, clone(v[0].data()), [](const Tensor& dy) {
      return Grads{full(dy.shape(), std::nan(""), f64, dy.device())};
    });
  };
  CHECK_THROWS_AS(gradcheck(nan, {leaf({2}, 1)}), Error);
}

TEST_CASE("gradcheck: leaves its inputs and their gradients alone") {
  const Variable x = leaf({4}, 3);
  const Variable absent, fixed(Tensor::from<int64_t>({1}));
  const Reference before = Reference::of(x.data());
  x.set_grad(ones({4}, f64, test_device()));
  gradcheck([](const Variables& v) { return sine(v[0]); }, {x, absent, fixed});
  CHECK(Reference::of(x.data()).values == before.values);
  CHECK(Reference::of(x.grad()).values == std::vector<double>(4, 1.0));
  CHECK(gradcheck([](const Variables& v) { return sine(v[0]); }, {x.detach()}).input == -1);
  CHECK(gradcheck([](const Variables& v) { return sine(v[0]); }, {leaf({0}, 1)}).input == -1);
}

TEST_CASE("gradcheck: refuses what it cannot judge") {
  const auto f = [](const Variables& v) { return sine(v[0]); };
  const Variable x(zeros({1}, f32, test_device()), true);
  CHECK_THROWS_WITH_AS(gradcheck(f, {x}), "gradcheck: input 0 is f32; differences need f64", Error);
  CHECK_THROWS_WITH_AS(
      gradcheck([](const Variables& v) { return Variable(cast(v[0].data(), f32)); },
                {leaf({1}, 1)}),
      "gradcheck: the function gives f32; differences need f64", Error);
  int calls = 0;
  CHECK_THROWS_WITH_AS(
      gradcheck([&](const Variables&) { return Variable(full({1}, ++calls, f64, test_device())); },
                {leaf({1}, 1)}),
      "gradcheck: the function gives different results for the same inputs", Error);
}
