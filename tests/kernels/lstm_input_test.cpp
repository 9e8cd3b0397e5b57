// Directions whose input's product was computed elsewhere.
#include <bs/autograd/linear.h>
#include <bs/autograd/lstm.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/linear.h>
#include <bs/tests/kernels/lstm_reference.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// What joined() gives of a direction that `linear` gave its input.
Variable of_input(const LstmCase& k, const Variables& v) {
  LSTMDirectionVariables d = direction_of(k, v);
  d.weights.ih = {};
  d.input = linear(v[0], v[1]);
  return joined(lstm(v[0].detach(), {&d, 1}, lengths_of(k))[0]);
}

void check(const LstmCase& k) {
  check_op({.name = "lstm of an input",
            .inputs = k.inputs(),
            .op = [&](const Variables& v) { return of_input(k, v); },
            .reference = [&](const References& in) { return lstm_of(k, in); },
            .steps = 16.0 * static_cast<double>(std::max<int64_t>(1, k.steps))});
}

}  // namespace

TEST_CASE("lstm: an input's product computed elsewhere, in all directions, forms and types") {
  for (const bool reverse : {false, true})
    for (const int64_t projection : {0, 3}) {
      LstmCase k{.steps = 5,
                 .batch = 4,
                 .in = 2,
                 .cells = 6,
                 .projection = projection,
                 .reverse = reverse};
      check(k);
      k.lengths = {5, 1, 0, 3};
      check(k);
      k.zoneout_hidden = 0.25;
      k.zoneout_cell = 0.5;
      check(k);
    }
  check({.steps = 2, .batch = 5, .in = 3, .cells = 128});  // one kernel on a GPU
  check({.steps = 0, .batch = 2, .in = 3, .cells = 4});
  check({.steps = 3, .batch = 0, .in = 3, .cells = 4});
}

TEST_CASE("lstm: an input without biases, beside a direction that multiplies x itself") {
  const auto t = [](const Shape& shape, uint64_t seed) {
    return random_reference(shape, seed).tensor(f64, test_device());
  };
  const Tensor x = t({4, 3, 5}, 1), ih = t({24, 5}, 2), hh = t({24, 6}, 3);
  const LSTMDirection dense{.weights = {.ih = ih, .hh = hh}};
  LSTMDirection given{.weights = {.ih = {}, .hh = hh}};
  given.input = linear(x, ih, {}).transpose(0, 1).transpose(0, 1);
  const Reference before = Reference::of(given.input);
  const LSTMDirection both[] = {dense, given};
  const std::vector<LSTMResult> results = lstm(x, both);
  CHECK(Reference::of(results[0].y).values == Reference::of(results[1].y).values);
  CHECK(Reference::of(given.input).values == before.values);  // steps write memory of their own
  const Tensor dy = t({4, 3, 6}, 4);
  const LSTMUpstream up[] = {{dy, {}, {}, {}}, {dy, {}, {}, {}}};
  const LSTMBackward grads = lstm_backward(x, both, {}, results, up);
  const Reference dgates = Reference::of(grads.directions[1].input), in = Reference::of(x);
  CHECK_FALSE(grads.directions[0].input.defined());
  CHECK_FALSE(grads.directions[1].weights.ih.defined());
  Reference dih({24, 5});
  for (int64_t s = 0; s < 4; ++s)
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t i = 0; i < 24; ++i)
        for (int64_t j = 0; j < 5; ++j) dih.at({i, j}) += dgates.at({s, b, i}) * in.at({s, b, j});
  check_close("dW_ih", Reference::of(grads.directions[0].weights.ih), dih, 1e-13);
  const LSTMBackward alone = lstm_backward(x, {&both[1], 1}, {}, {&results[1], 1}, {&up[1], 1});
  CHECK_FALSE(alone.x.defined());
}

TEST_CASE("lstm: backward needs no input that a direction was given") {
  const auto leaf = [](const Shape& shape, uint64_t seed) {
    return Variable(random_reference(shape, seed).tensor(f32, test_device()), true);
  };
  const Variable x(zeros({5, 4, 1}, f32, test_device())), input = leaf({5, 4, 32}, 2);
  const auto holders = input.data().use_count();
  const LSTMDirectionVariables d{.weights = {.ih = {}, .hh = leaf({32, 8}, 1)}, .input = input};
  const LSTMStates states = lstm(x, {&d, 1})[0];
  CHECK(input.data().use_count() == holders);
  fill(input.data(), 7);
  CHECK_NOTHROW(states.y.backward(ones(states.y.shape(), f32, test_device())));
  CHECK(input.grad().shape() == input.shape());
}

TEST_CASE("lstm: what stands in an input beyond a sequence's length reaches nothing") {
  const std::vector<int64_t> ends{5, 2, 0};
  const Tensor lengths = Tensor::from<int64_t>(std::span<const int64_t>(ends), {3});
  const Tensor x = Tensor::empty({5, 3, 1}, f32, test_device());
  LSTMDirection d{
      .weights = {.ih = {}, .hh = random_reference({32, 8}, 2).tensor(f32, test_device())}};
  const auto run = [&](double beyond) {
    Reference input = random_reference({5, 3, 32}, 3);
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t s = ends[static_cast<size_t>(b)]; s < 5; ++s)
        for (int64_t i = 0; i < 32; ++i) input.at({s, b, i}) = beyond;
    d.input = input.tensor(f32, test_device());
    const auto results = lstm(x, {&d, 1}, lengths);
    const LSTMUpstream up{random_reference({5, 3, 8}, 4).tensor(f32, test_device()), {}, {}, {}};
    const LSTMBackward all = lstm_backward(x, {&d, 1}, lengths, results, {&up, 1});
    std::vector<double> values;
    for (const Tensor& t : {results[0].y, all.directions[0].input, all.directions[0].weights.hh}) {
      const std::vector<double> more = Reference::of(t).values;
      values.insert(values.end(), more.begin(), more.end());
    }
    return values;
  };
  CHECK(run(std::numeric_limits<double>::quiet_NaN()) == run(0));
}

TEST_CASE("lstm refuses an input that does not fit") {
  const auto t = [](const Shape& shape, DType dtype = f32) { return Tensor::empty(shape, dtype); };
  const auto run = [&](const LSTMDirection& d) { return lstm(t({4, 5, 3}), {&d, 1}); };
  LSTMDirection d{.weights = {.ih = t({8, 3}), .hh = t({8, 2})}};
  d.input = t({4, 5, 8});
  CHECK_THROWS_WITH_AS(run(d),
                       "lstm: weight_ih [8, 3] beside an input [4, 5, 8], which stands for its "
                       "product",
                       Error);
  d.weights.ih = {};
  CHECK(run(d)[0].y.shape() == Shape{4, 5, 2});
  d.input = t({4, 5, 6});
  CHECK_THROWS_WITH_AS(run(d), "lstm: input [4, 5, 6] is not [steps, batch, 4 cells]", Error);
  d.input = t({5, 4, 8});
  CHECK_THROWS_WITH_AS(run(d), "lstm: input [5, 4, 8] where [4, 5, 8] is expected", Error);
  d.input = t({4, 5, 8}, f16);
  CHECK_THROWS_WITH_AS(run(d), "lstm: dtypes f32 and f16 differ", Error);
  d.input = t({4, 5, 8});
  CHECK_THROWS_WITH_AS(lstm_layers(t({4, 5, 3}), {&d, 1}),
                       "lstm_layers: a layer with an input [4, 5, 8] of its own", Error);
}
