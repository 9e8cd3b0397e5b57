#include <bs/kernels/binary.h>
#include <bs/kernels/fill.h>
#include <bs/tests/autograd/own_functions.h>
#include <bs/tests/support/guarded_memory.h>
#include <doctest/doctest.h>

#include <ctime>
#include <latch>
#include <thread>

using namespace bs;
using namespace bs::test;

namespace {

/// Of the processor: what other programs take of it does not count.
double seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

Variable failing(const Variable& x) {
  return tape().record("failing", {x}, clone(x.data()),
                       [](const Tensor&) -> Grads { throw Error("failing: on purpose"); });
}

Variable squared(const Variable& x) {
  return tape().record("squared", {x}, x.data() * x.data(),
                       [x = x.data()](const Tensor& dy) { return Grads{dy * x * 2}; });
}

const char* const gone =
    "backward: the graph of this variable is gone: an earlier backward has freed it, or it was "
    "recorded by another thread; pass retain_graph to run backward twice";

}  // namespace

TEST_CASE("tape: chain rule over temporaries that nobody else holds") {
  const Variable x = leaf({1, 2});
  scale(scale(scale(x, 2), 3), 5).backward(seed({1, 10}));
  CHECK(values(x.grad()) == Values{30, 300});
  CHECK(tape().size() == 0);
}

TEST_CASE("tape: values that no backward needs are freed") {
  const Variable x = leaf({1, 2, 3});
  const Device device = x.device();
  const Unguarded memory(device);
  const int64_t before = memory_statistics(device).in_use;
  Variable h = x;
  for (int i = 0; i < 10; ++i) h = add(scale(h, 2), x);
  CHECK(memory_statistics(device).in_use == before + static_cast<int64_t>(h.data().bytes()));
  h.backward(seed({1, 1, 1}));
  CHECK(values(x.grad()) == Values{2047, 2047, 2047});
}

TEST_CASE("tape: values that a backward needs stay, and no handle with them") {
  const Variable x = leaf({1, 2});
  const Device device = x.device();
  const Unguarded memory(device);
  const int64_t before = memory_statistics(device).in_use;
  Variable y = squared(scale(x, 3));
  const auto bytes = static_cast<int64_t>(y.data().bytes());
  CHECK(memory_statistics(device).in_use == before + 2 * bytes);  // y, and what square saves
  y.backward(seed({1, 10}));
  CHECK(values(x.grad()) == Values{18, 360});
  y = {};
  CHECK(memory_statistics(device).in_use == before + bytes);  // the gradient
}

TEST_CASE("tape: the gradient of a result can be seen after its handle came and went") {
  const Variable x = leaf({1, 2});
  int calls = 0;
  Variable y;
  {
    const Variable middle = scale(x, 2);
    middle.register_hook([&](const Tensor&) {
      ++calls;
      return Tensor();
    });
    y = scale(middle, 3);
  }
  y.backward(seed({1, 1}));
  CHECK(calls == 1);
  CHECK(values(x.grad()) == Values{6, 6});
}

TEST_CASE("tape: a variable used twice gets the sum") {
  const Variable x = leaf({1, 2});
  const Variable twice = add(x, x);
  add(scale(twice, 3), twice).backward(seed({1, 10}));
  CHECK(values(x.grad()) == Values{8, 80});
}

TEST_CASE("tape: gradients add up over backwards until they are zeroed") {
  const Variable x = leaf({1});
  scale(x, 2).backward();
  scale(x, 5).backward();
  CHECK(x.grad().item() == 7);
  x.zero_grad();
  CHECK(!x.grad().defined());
}

TEST_CASE("tape: a gradient that somebody holds does not change under him") {
  const Variable x = leaf({1});
  scale(x, 2).backward();
  const Tensor held = x.grad();
  scale(x, 2).backward();
  CHECK(held.item() == 2);
  CHECK(x.grad().item() == 4);
}

TEST_CASE("tape: gradients of two leaves never share memory") {
  const Variable a = leaf({1}), b = leaf({1});
  const Tensor dy = seed({3});
  add(a, b).backward(dy);
  CHECK(!a.grad().shares_storage(b.grad()));
  CHECK(!a.grad().shares_storage(dy));
  fill(a.grad(), 0);
  CHECK(b.grad().item() == 3);
  CHECK(dy.item() == 3);
}

TEST_CASE("tape: backward from a leaf is its gradient") {
  const Variable x = leaf({1, 2});
  x.backward(seed({3, 4}));
  x.backward(seed({3, 4}));
  CHECK(values(x.grad()) == Values{6, 8});
}

TEST_CASE("tape: retain_graph allows a second backward, which doubles the gradients") {
  const Variable x = leaf({1});
  const Variable y = add(scale(x, 3), x);
  y.backward({.retain_graph = true});
  CHECK(x.grad().item() == 4);
  CHECK(tape().size() == 2);
  y.backward();
  CHECK(x.grad().item() == 8);
  CHECK(tape().size() == 0);
  CHECK_THROWS_WITH_AS(y.backward(), gone, Error);
  CHECK(x.grad().item() == 8);
}

TEST_CASE("tape: a graph freed in part is refused before anything changes") {
  const Variable x = leaf({1}), z = leaf({1});
  const Variable shared = scale(x, 2);
  const Variable a = scale(shared, 3);
  const Variable b = add(scale(z, 7), shared);
  a.backward();
  CHECK_THROWS_WITH_AS(b.backward(), gone, Error);
  CHECK(x.grad().item() == 6);
  CHECK(!z.grad().defined());
}

TEST_CASE("tape: an exception leaves no pending gradients and a tape that works") {
  const Variable x = leaf({1});
  const Variable h = scale(x, 2);
  const Variable y = add(scale(h, 3), failing(h));
  CHECK_THROWS_WITH_AS(y.backward({.retain_graph = true}), "failing: on purpose", Error);
  CHECK(!x.grad().defined());
  CHECK(!h.grad().defined());
  CHECK(grad_enabled());
  scale(h, 5).backward();
  CHECK(x.grad().item() == 10);
}

TEST_CASE("tape: several outputs, of which any may be unused") {
  for (const bool use_first : {false, true})
    for (const bool use_second : {false, true}) {
      const Variable x = leaf({1});
      const std::vector<Variable> h = two_and_three(x);
      Variable y = scale(x, 1);
      if (use_first) y = add(y, h[0]);
      if (use_second) y = add(y, h[1]);
      y.backward();
      CHECK(x.grad().item() == 1 + (use_first ? 2 : 0) + (use_second ? 3 : 0));
    }
}

TEST_CASE("tape: outputs that can have no gradient") {
  const Variable x = leaf({1});
  const auto y = tape().record_many("mixed", std::span(&x, 1),
                                    {scaled(x.data(), 2), {}, Tensor::from<int64_t>({3})},
                                    [](const Grads& dys) { return Grads{scaled(dys[0], 2)}; });
  CHECK(y[0].requires_grad());
  CHECK(!y[1].defined());
  CHECK(!y[2].requires_grad());
  y[0].backward();
  CHECK(x.grad().item() == 2);
}

TEST_CASE("tape: absent inputs and inputs without gradient") {
  const Variable x = leaf({1});
  const Variable fixed(x.data());
  const Variable inputs[] = {Variable(), fixed, x};
  tape()
      .record("pick", inputs, clone(x.data()),
              [](const Tensor& dy) {
                return Grads{{}, {}, dy};
              })
      .backward();
  CHECK(x.grad().item() == 1);
  CHECK(!fixed.grad().defined());
}

TEST_CASE("tape: an undefined gradient stands for zero") {
  const Variable a = leaf({1}), b = leaf({1});
  const Variable blind = tape().record("blind", {scale(a, 2)}, clone(a.data()),
                                       [](const Tensor&) { return Grads{Tensor()}; });
  add(add(blind, a), b).backward();
  CHECK(a.grad().item() == 1);
  CHECK(b.grad().item() == 1);
}

TEST_CASE("tape: backward functions get dense gradients") {
  const Variable x(zeros({2, 3}, f64, test_device()), true);
  const auto transposed = [](const Variable& v) {
    return tape().record("transpose", {v}, v.data().transpose(0, 1), [](const Tensor& dy) {
      CHECK(dy.is_contiguous());
      return Grads{dy.transpose(0, 1)};
    });
  };
  const Reference dy = random_reference({2, 3}, 1);
  transposed(transposed(x)).backward(dy.tensor(f64, test_device()));
  CHECK(x.grad().is_contiguous());
  CHECK(values(x.grad()) == dy.values);
}

TEST_CASE("tape: wrong gradients are refused by name") {
  const Variable x = leaf({1, 2});
  const auto wrong = [&](Grads gradients) {
    return tape().record("wrong", {x}, clone(x.data()),
                         [gradients](const Tensor&) { return gradients; });
  };
  const Tensor dy = seed({1, 1});
  CHECK_THROWS_WITH_AS(wrong({}).backward(dy), "backward: wrong gave 0 gradients for 1 inputs",
                       Error);
  const std::string where = to_string(test_device());
  CHECK_THROWS_WITH_AS(wrong({seed({1})}).backward(dy),
                       ("backward: wrong gave a gradient f64 [1] on " + where +
                        " for a variable f64 [2] on " + where)
                           .c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(scale(x, 2).backward(seed({1})),
                       ("backward: the caller gave a gradient f64 [1] on " + where +
                        " for a variable f64 [2] on " + where)
                           .c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(
      scale(x, 2).backward(),
      "backward: shape [2] is no single number; reduce it with sum or mean, or give a gradient",
      Error);
  CHECK_THROWS_WITH_AS(x.detach().backward(dy), "backward: this variable requires no gradient",
                       Error);
  x.register_hook([](const Tensor&) { return seed({1}); });
  CHECK_THROWS_WITH_AS(scale(x, 2).backward(dy),
                       ("backward: a hook gave a gradient f64 [1] on " + where +
                        " for a variable f64 [2] on " + where)
                           .c_str(),
                       Error);
  CHECK(!x.grad().defined());
}

TEST_CASE("tape: nothing is recorded under NoGrad or without need") {
  tape().clear();
  const Variable x = leaf({1});
  {
    const NoGrad no_grad;
    CHECK(!scale(x, 2).requires_grad());
    const NoGrad nested;
  }
  CHECK(!scale(x.detach(), 2).requires_grad());
  CHECK(tape().size() == 0);
  CHECK(scale(x, 2).requires_grad());
}

TEST_CASE("tape: forwards whose results are let go do not pile up") {
  tape().clear();
  const Variable x = leaf({1});
  for (int step = 0; step < 100; ++step) {
    Variable y = x;
    for (int layer = 0; layer < 10; ++layer) y = scale(y, 1);
    CHECK(tape().size() == 10);
  }
  // What is dead behind something living is found by the occasional sweep.
  Variable living;
  size_t largest = 0;
  for (int step = 0; step < 5000; ++step) {
    const Variable passing = scale(x, 2);
    living = scale(x, 3);
    largest = std::max(largest, tape().size());
  }
  CHECK(largest > 1000);
  CHECK(largest <= 1024 + 2);
}

TEST_CASE("tape: what a dropped or passed operation saved is freed") {
  const Variable x = leaf({1});
  std::weak_ptr<int> saved;
  const auto remember = [&] {
    auto capture = std::make_shared<int>(7);
    saved = capture;
    return tape().record("remember", {x}, clone(x.data()),
                         [capture](const Tensor& dy) { return Grads{dy}; });
  };
  remember();
  CHECK(!saved.expired());
  scale(x, 1);
  CHECK(saved.expired());
  const Variable y = remember();
  y.backward({.retain_graph = true});
  CHECK(!saved.expired());
  y.backward();
  CHECK(saved.expired());
}

TEST_CASE("tape: a chain of 100000 operations needs no deep stack and linear time") {
  const int deep = 100000;
  const Variable x(zeros({}, f64), true);
  const auto link = [](const Variable& v) {
    return tape().record("link", {v}, v.data(), [](const Tensor& dy) { return Grads{dy}; });
  };
  Variable y = x;
  const std::clock_t start = std::clock();
  for (int i = 0; i < deep; ++i) y = link(y);
  y.backward();
  CHECK(x.grad().item() == 1);
  for (int i = 0; i < deep; ++i) y = link(i == 0 ? x : y);
  y = {};
  tape().clear();
  CHECK(seconds_since(start) < 20);
}

TEST_CASE("tape: many backwards beside a long graph cost what they pass, not its length") {
  const Variable x(zeros({}, f64), true);
  std::vector<Variable> kept;
  for (int i = 0; i < 20000; ++i)
    kept.push_back(
        tape().record("keep", {x}, x.data(), [](const Tensor& dy) { return Grads{dy}; }));
  const std::clock_t start = std::clock();
  for (const Variable& v : kept) v.backward();
  CHECK(seconds_since(start) < 10);
  CHECK(x.grad().item() == 20000);
}

TEST_CASE("tape: a backward inside a backward") {
  const Variable x = leaf({3});
  const Variable y = tape().record("outer", {x}, scaled(x.data(), 2), [](const Tensor& dy) {
    const Variable again = leaf({3});
    again.backward(dy);
    return Grads{scaled(again.grad(), 2)};
  });
  scale(y, 5).backward();
  CHECK(x.grad().item() == 10);
}

TEST_CASE("tape: threads that share a leaf lose no gradient") {
  constexpr int threads = 4, rounds = 2000;
  const Variable w = leaf({1, 2, 3});
  std::latch all_there(threads);
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&] {
      all_there.arrive_and_wait();
      for (int round = 0; round < rounds; ++round) scale(w, 2).backward(seed({1, 1, 1}));
    });
  for (std::thread& thread : all) thread.join();
  CHECK(values(w.grad()) == Values(3, 2.0 * threads * rounds));
}

TEST_CASE("tape: each thread has its own") {
  const Variable x = leaf({1});
  const Variable here = scale(x, 2);
  const size_t before = tape().size();
  std::string message;
  double there = 0;
  std::thread([&] {
    CHECK(tape().size() == 0);
    const Variable z = leaf({1});
    scale(z, 4).backward();
    there = z.grad().item();
    try {
      scale(here, 3).backward();
    } catch (const Error& error) {
      message = error.what();
    }
  }).join();
  CHECK(there == 4);
  CHECK(message == gone);
  CHECK(tape().size() == before);
  here.backward();
  CHECK(x.grad().item() == 2);
}
