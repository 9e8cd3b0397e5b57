#include <bs/tests/autograd/own_functions.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

TEST_CASE("tape: hooks see the whole gradient of one backward, once, in order") {
  const Variable x = leaf({1});
  std::vector<double> seen;
  x.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return scaled(g, 10);
  });
  x.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  const Variable y = add(scale(x, 2), scale(x, 3));
  y.backward({.retain_graph = true});
  CHECK(seen == std::vector<double>{5, 50});
  CHECK(x.grad().item() == 50);
  y.backward();
  CHECK(seen == std::vector<double>{5, 50, 5, 50});
  CHECK(x.grad().item() == 100);
}

TEST_CASE("tape: a hook may register hooks, which see the next backward") {
  const Variable x = leaf({1});
  int first = 0, late = 0, last = 0;
  x.register_hook([&](const Tensor&) {
    for (int i = 0; i < 20; ++i) x.register_hook([&](const Tensor&) { return ++late, Tensor(); });
    return ++first, Tensor();
  });
  x.register_hook([&](const Tensor&) { return ++last, Tensor(); });
  const Variable y = scale(x, 2);
  y.backward({.retain_graph = true});
  CHECK(std::vector{first, late, last} == std::vector{1, 0, 1});
  y.backward();
  CHECK(std::vector{first, late, last} == std::vector{2, 20, 2});
}

TEST_CASE("tape: a leaf's hook runs as soon as its gradient is complete") {
  const Variable first = leaf({1}), second = leaf({1});
  const Variable h = scale(first, 2);
  std::vector<int> order;
  h.register_hook([&](const Tensor&) { return order.push_back(0), Tensor(); });
  first.register_hook([&](const Tensor&) { return order.push_back(1), Tensor(); });
  second.register_hook([&](const Tensor&) { return order.push_back(2), Tensor(); });
  add(h, second).backward();
  CHECK(order == std::vector<int>{0, 2, 1});
}

TEST_CASE("tape: a hook on a result that nobody holds runs, and what it returns flows on") {
  const Variable x = leaf({1});
  Variable h = scale(x, 2);
  h.register_hook([](const Tensor& g) { return scaled(g, -1); });
  Variable y = scale(h, 3);
  h = {};
  y.backward();
  CHECK(x.grad().item() == -6);
}

TEST_CASE("tape: retain_grad keeps and sums the gradient of a result") {
  const Variable x = leaf({1});
  const Variable h = scale(x, 2);
  h.retain_grad();
  const Variable y = add(h, h);
  y.backward({.retain_graph = true});
  CHECK(h.grad().item() == 2);
  y.backward();
  CHECK(h.grad().item() == 4);
  CHECK(x.grad().item() == 8);
}

TEST_CASE("tape: no function is no hook") {
  const Variable x = leaf({1});
  CHECK_THROWS_WITH_AS(x.register_hook(nullptr), "variable: register_hook of no function", Error);
  scale(x, 2).backward();
  CHECK(x.grad().item() == 2);
}

TEST_CASE("tape: no function is no backward") {
  const Variable x = leaf({1});
  CHECK_THROWS_WITH_AS(tape().record("twice", {x}, seed({2}), Tape::Backward()),
                       "twice: recorded without a backward", Error);
  CHECK_THROWS_WITH_AS(tape().record_many("twice", {&x, 1}, {seed({2})}, Tape::BackwardMany()),
                       "twice: recorded without a backward", Error);
}
