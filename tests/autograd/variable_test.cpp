#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/compare.h>
#include <bs/autograd/compound.h>
#include <bs/autograd/conv2d.h>
#include <bs/autograd/matmul.h>
#include <bs/autograd/norm.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/softmax.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/view.h>
#include <bs/kernels/compound.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <functional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

using namespace bs;
using namespace bs::test;

namespace {
Variable identity(const Variable& x) {
  return tape().record("identity", {x}, x.data(), [](const Tensor& dy) { return Grads{dy}; });
}
}  // namespace

TEST_CASE("variable: a tensor becomes one by itself, never the other way") {
  static_assert(std::is_convertible_v<Tensor, Variable>);
  static_assert(!std::is_convertible_v<Variable, Tensor>);
  const Variable x = zeros({2, 3}, f32, test_device());
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.size(-1) == 3);
  CHECK(x.rank() == 2);
  CHECK(x.dtype() == f32);
  CHECK(x.device() == test_device());
  CHECK(x.is_leaf());
  CHECK(!x.requires_grad());
}

TEST_CASE("variable: undefined") {
  const Variable x;
  CHECK(!x.defined());
  CHECK(!x.requires_grad());
  CHECK(!Variable(Tensor()).defined());
  const auto text = [](const char* name) {
    return std::string(name) +
           ": a Variable is undefined: nothing was assigned to it, or an option left it out";
  };
  CHECK_THROWS_WITH_AS(x.data("mine"), text("mine").c_str(), Error);
  CHECK_THROWS_WITH_AS(x.grad(), text("grad").c_str(), Error);
  CHECK_THROWS_WITH_AS(x.set_grad({}), text("set_grad").c_str(), Error);
  CHECK_THROWS_WITH_AS(x.set_data({}), text("set_data").c_str(), Error);
  CHECK_THROWS_WITH_AS(x.backward(), text("backward").c_str(), Error);
}

TEST_CASE("variable: an operation of an undefined one says its own name") {
  const Variable none, x = zeros({2, 3}, f32, test_device());
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"softmax: a Variable", [&] { softmax(none); }},
      {"matmul: a Variable", [&] { matmul(x, none); }},
      {"add: a Variable", [&] { add(none, x); }},
      {"add: a Variable", [&] { none + x; }},
      {"tanh: a Variable", [&] { tanh(none); }},
      {"sum: a Variable", [&] { sum(none); }},
      {"reshape: a Variable", [&] { reshape(none, {6}); }},
      {"conv2d: a Variable", [&] { conv2d(none, none); }},
      {"layer_norm: a Variable", [&] { layer_norm(none, none, none); }},
      {"softmax: ", [] { softmax(Tensor(), -1); }},
      {"matmul: ", [&] { matmul(x.data(), Tensor()); }},
      {"add: a Tensor", [&] { add(x.data(), Tensor()); }},
      {"mul: a Tensor", [&] { mul(Tensor(), x.data()); }},
      {"conv2d: ", [] { conv2d(Tensor(), Tensor()); }}};
  for (const auto& call : calls) {
    std::string message;
    try {
      call.second();
    } catch (const Error& e) {
      message = e.what();
    }
    CHECK_MESSAGE(message.starts_with(call.first), std::string(call.first), "gave: ", message);
  }
}

TEST_CASE("variable: only a variable can be assigned to") {
  static_assert(std::is_assignable_v<Variable&, Variable>);
  static_assert(std::is_assignable_v<Variable&, Tensor>);
  static_assert(!std::is_assignable_v<Variable, Variable>);
  static_assert(!std::is_assignable_v<Variable, const Variable&>);
  static_assert(!std::is_assignable_v<Variable, Tensor>);
}

TEST_CASE("variable: copies name the same variable, detach makes another of the same values") {
  const Variable x(zeros({1}, f32, test_device()), true);
  const Variable same = x, other = x.detach();
  identity(same).backward();
  CHECK(x.grad().item() == 1);
  CHECK(!other.requires_grad());
  CHECK(other.data().shares_storage(x.data()));
}

TEST_CASE("variable: only floating dtypes can have a gradient") {
  CHECK_THROWS_WITH_AS(Variable(zeros({1}, i32, test_device()), true),
                       "variable: dtype i32 can have no gradient", Error);
}

TEST_CASE("variable: what may be done to a leaf only") {
  const Variable x(zeros({1}, f32, test_device()), true);
  const Variable y = identity(x);
  CHECK(!y.is_leaf());
  CHECK_THROWS_WITH_AS(y.set_data(x.data()),
                       "variable: set_data on the result of an operation; detach it first", Error);
  CHECK_THROWS_WITH_AS(y.set_requires_grad(false),
                       "variable: set_requires_grad on the result of an operation; detach it first",
                       Error);
  CHECK_THROWS_WITH_AS(x.set_data({}), "variable: set_data of an undefined tensor", Error);
  CHECK_THROWS_WITH_AS(
      x.set_data(zeros({1}, i64, test_device())),
      "variable: set_data of dtype i64, which can have no gradient, where one is required", Error);
  x.detach().set_data(zeros({1}, i64, test_device()));
  x.set_data(ones({2, 2}, f64, test_device()));
  CHECK(x.shape() == Shape{2, 2});
  CHECK(x.requires_grad());
  x.set_requires_grad(false);
  CHECK(!identity(x).requires_grad());
}

TEST_CASE("variable: set_grad, retain_grad and register_hook check themselves") {
  const Variable x(zeros({2}, f32, test_device()), true);
  CHECK_THROWS_WITH_AS(x.set_grad(zeros({3}, f32, test_device())),
                       "variable: gradient of shape [3] for data of shape [2]", Error);
  CHECK_THROWS_WITH_AS(x.set_grad(zeros({2}, f64, test_device())),
                       doctest::Contains("variable: gradient of f64 on "), Error);
  x.set_grad(ones({2}, f32, test_device()));
  identity(x).backward(ones({2}, f32, test_device()));
  CHECK(x.grad().slice(0, 0, 1).item() == 2);
  const Variable fixed = x.detach();
  CHECK_THROWS_WITH_AS(fixed.retain_grad(), "variable: retain_grad where no gradient will come",
                       Error);
  CHECK_THROWS_WITH_AS(fixed.register_hook([](const Tensor& g) { return g; }),
                       "variable: register_hook where no gradient will come", Error);
}

TEST_CASE("variable: its number, its count, and how it prints") {
  const Variable x(Tensor::from({2.5}), true);
  CHECK(x.item() == 2.5);
  CHECK(x.numel() == 1);
  CHECK(to_string(x) == "Variable(Tensor([2.5000], f64 [1] cpu), requires a gradient)");
  std::ostringstream out;
  out << x.detach() << Variable();
  CHECK(out.str() == "Variable(Tensor([2.5000], f64 [1] cpu))Variable(undefined)");
  CHECK_THROWS_AS(Variable(Tensor::from({1.0, 2.0})).item(), Error);
}

TEST_CASE("variable: comparisons give tensors, beside numbers and tensors") {
  const Tensor t = Tensor::from({1.0, 2.0, 3.0});
  const Variable x(t, true);
  const auto is = [](const Tensor& y, double a, double b, double c) {
    CHECK(y.dtype() == boolean);
    CHECK(Reference::of(y).values == std::vector<double>{a, b, c});
  };
  is(x < 2, 1, 0, 0);
  is(x <= 2, 1, 1, 0);
  is(2 > x, 1, 0, 0);
  is(2 <= x, 0, 1, 1);
  is(x > Tensor::from({2.0}), 0, 0, 1);
  is(t >= x, 1, 1, 1);
  is(eq(x, 2), 0, 1, 0);
  is(ne(x, x), 0, 0, 0);
}

TEST_CASE("variable: compound assignment keeps what was recorded") {
  Variable x(Tensor::from({1.0, 2.0}), true);
  const Variable leaf = x;
  x *= x;
  x += 1;
  x -= leaf;
  x /= 2;
  CHECK(Reference::of(x.data()).values == std::vector<double>{.5, 1.5});
  x.backward(Tensor::from({1.0, 1.0}));
  CHECK(Reference::of(leaf.grad()).values == std::vector<double>{.5, 1.5});
  Tensor t = Tensor::from({1.0, 2.0});
  const Tensor before = t;
  t += before;
  t *= 3;
  t -= Tensor::from({1.0, 1.0});
  t /= 5;
  CHECK(Reference::of(t).values == std::vector<double>{1, 2.2});
  CHECK(Reference::of(before).values == std::vector<double>{1, 2});
}
