#include <bs/autograd/binary.h>
#include <bs/autograd/grad.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

Tensor values(std::initializer_list<double> list) { return Tensor::from(list).to(test_device()); }
std::vector<double> of(const Tensor& x) { return Reference::of(x).values; }
using Doubles = std::vector<double>;

}  // namespace

TEST_CASE("grad: leaves and results on the way, and no variable changes") {
  const Variable x(values({1, 2}), true), y(values({3, 4}), true), z(values({5, 6}), true);
  const Variable product = x * y;
  product.retain_grad();
  const Variable loss = sum(product * product * z);
  const Grads g = grad(loss, {x, product, loss});
  CHECK(of(g[0]) == Doubles{2 * 3 * 3 * 5, 2 * 8 * 4 * 6});
  CHECK(of(g[1]) == Doubles{2 * 3 * 5, 2 * 8 * 6});
  CHECK(of(g[2]) == Doubles{1});
  for (const Variable& v : {x, y, z, product}) CHECK(!v.grad().defined());
}

TEST_CASE("grad: one that the output does not depend on is undefined") {
  const Variable x(values({1, 2}), true), other(values({3}), true);
  const Grads g = grad(sum(x), {other, x});
  CHECK(!g[0].defined());
  CHECK(of(g[1]) == Doubles{1, 1});
}

TEST_CASE("grad and backward: no gradient to start from is an error, and changes nothing") {
  const Variable x(values({1, 2}), true), y = x * x;
  CHECK_THROWS_WITH_AS(y.backward(Tensor()), "backward: the gradient to start from is undefined",
                       Error);
  CHECK_THROWS_WITH_AS(grad(y, std::vector<Variable>{x}, Tensor()),
                       "grad: the gradient to start from is undefined", Error);
  y.backward(values({1, 1}));
  CHECK(of(x.grad()) == Doubles{2, 4});
}

TEST_CASE("grad: an undefined output is named by the function that was called") {
  const Variable none, x(values({1}), true);
  CHECK_THROWS_WITH_AS(grad(none, {x}), doctest::Contains("grad: a Variable is undefined"), Error);
  CHECK_THROWS_WITH_AS(differentiable_grad(x * values({1, 2}), x),
                       doctest::Contains("differentiable_grad: shape [2] is no single number"),
                       Error);
}

TEST_CASE("grad: each gradient has memory of its own") {
  const Variable x(values({1, 2}), true), y(values({3, 4}), true);
  const Tensor start = values({7, 8});
  const std::vector<Variable> inputs = {x, y, x};
  const Grads g = grad(x + y, inputs, start);
  for (const Tensor& each : g) {
    CHECK(of(each) == Doubles{7, 8});
    CHECK(!each.shares_storage(start));
  }
  fill(g[0], 0);
  CHECK(of(g[1]) == Doubles{7, 8});
  CHECK(of(g[2]) == Doubles{7, 8});
}

TEST_CASE("grad: the graph is freed, or kept where it is asked for; hooks run") {
  const Variable x(values({3}), true);
  x.register_hook([](const Tensor& dy) { return mul(dy, 2); });
  const Variable y = sum(x * x);
  CHECK(of(grad(y, {x}, {.retain_graph = true})[0]) == Doubles{12});
  y.backward();
  CHECK(of(x.grad()) == Doubles{12});
  CHECK_THROWS_AS(grad(y, {x}), Error);
}

TEST_CASE("grad: several outputs in one walk, one of them on the way to another") {
  const Variable x(values({1, 2}), true), y(values({3}), true);
  const Variable squares = x * x;
  const Variable loss = sum(squares * 2);
  const Grads g =
      grad({loss, squares, y * 4}, {x, y, squares}, {Tensor(), values({10, 100}), Tensor()});
  CHECK(of(g[0]) == Doubles{2 * 1 * 12, 2 * 2 * 102});
  CHECK(of(g[1]) == Doubles{4});
  CHECK(of(g[2]) == Doubles{12, 102});
  const Variable z = x * 3;
  CHECK(of(grad({z, z}, {x}, {values({1, 2}), values({10, 20})})[0]) == Doubles{33, 66});
}

TEST_CASE("grad: errors of several outputs leave the graph as it was") {
  const Variable x(values({1, 2}), true), fixed(values({1}));
  const Variable y = sum(x), rows = x * 2;
  CHECK_THROWS_WITH_AS(grad({y, fixed}, {x}), "grad: output 1 requires no gradient", Error);
  CHECK_THROWS_WITH_AS(
      grad({y, rows}, {x}),
      "grad: shape [2] is no single number; reduce it with sum or mean, or give a gradient", Error);
  CHECK_THROWS_WITH_AS(grad({y, rows}, {x}, {values({1, 1})}), "grad: 1 gradients for 2 outputs",
                       Error);
  CHECK_THROWS_WITH_AS(grad(std::span<const Variable>(), {&x, 1}), "grad: no outputs", Error);
  CHECK(of(grad({y}, {x})[0]) == Doubles{1, 1});
}

TEST_CASE("grad: its errors") {
  const Variable x(values({1, 2}), true), fixed(values({1}));
  CHECK_THROWS_WITH_AS(
      grad(x * 2, {x}),
      "grad: shape [2] is no single number; reduce it with sum or mean, or give a gradient", Error);
  CHECK_THROWS_WITH_AS(grad(sum(x), {x, fixed}), "grad: input 1 requires no gradient", Error);
  CHECK_THROWS_WITH_AS(grad(fixed, {x}), "grad: the output requires no gradient", Error);
}

TEST_CASE("stddev: against differences; one axis by its number; no gradient where it is 0") {
  const Variable x(random_reference({3, 4}, 5).tensor(f64, test_device()), true);
  gradcheck([](const auto& v) { return stddev(v[0], 1); }, {x});
  gradcheck([](const auto& v) { return stddev(v[0], Axes(), true, 0); }, {x});
  CHECK(of(sum(x, 0).data()) == of(sum(x, Axes(Dims{0})).data()));
  CHECK(mean(x.data(), -1, true).shape() == Shape{3, 1});
  CHECK(sum(x, {}, true).shape() == Shape{1, 1});
  const Variable same(full({4}, 2, f64, test_device()), true);
  const Variable y = stddev(same);
  y.backward();
  CHECK(y.item() == 0);
  CHECK(of(same.grad()) == Doubles{0, 0, 0, 0});
  const double expected = std::sqrt((1.5 * 1.5 + .5 * .5) * 2 / 3);
  CHECK(stddev(values({1, 2, 3, 4})).item() == doctest::Approx(expected));
}
