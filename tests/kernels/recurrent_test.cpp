#include <bs/autograd/concat.h>
#include <bs/autograd/gru.h>
#include <bs/autograd/rnn.h>
#include <bs/autograd/view.h>
#include <bs/kernels/fill.h>
#include <bs/tests/kernels/recurrent_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

const Kind kinds[] = {Kind::gru, Kind::tanh, Kind::relu};

Tensor lengths_of(const RecurrentCase& k) {
  if (k.lengths.empty()) return {};
  return Tensor::from<int64_t>(std::span<const int64_t>(k.lengths), {k.batch});
}

RecurrentDirectionVariables direction_of(const RecurrentCase& k, const Variables& v) {
  return {.weights = {.ih = v[1], .hh = v[2], .bias_ih = v[3], .bias_hh = v[4]},
          .h0 = v[5],
          .reverse = k.reverse};
}

std::vector<RecurrentStates> run(const RecurrentCase& k, const Variable& x,
                                 std::span<const RecurrentDirectionVariables> directions) {
  if (k.kind == Kind::gru) return gru(x, directions, lengths_of(k));
  const Nonlinearity f = k.kind == Kind::relu ? Nonlinearity::relu : Nonlinearity::tanh;
  return rnn(x, directions, f, lengths_of(k));
}

/// y and h_n behind each other.
Variable joined(const RecurrentStates& s) {
  return concat({reshape(s.y, {-1}), reshape(s.h_n, {-1})}, 0);
}

/// A rounding at each step: the error may grow by as much. Weights are small enough that steps do
/// not amplify what was rounded before them. The slope of a relu jumps at zero, and values of 16
/// bits cross it by rounding: there it is compared in f64 and f32.
void check(const RecurrentCase& k) {
  CAPTURE(k.steps);
  CAPTURE(k.cells);
  std::vector<DType> dtypes = {f64, f32};
  if (k.kind != Kind::relu) dtypes.insert(dtypes.end(), {f16, bf16});
  const double range = std::min(1.0, 2 / std::sqrt(static_cast<double>(k.cells)));
  check_op({.name = k.kind == Kind::gru ? "gru" : "rnn",
            .inputs = k.inputs(),
            .op =
                [&](const Variables& v) {
                  const RecurrentDirectionVariables d = direction_of(k, v);
                  return joined(run(k, v[0], {&d, 1})[0]);
                },
            .reference = [&](const References& in) { return recurrent_of(k, in); },
            .low = -range,
            .high = range,
            .steps = 16.0 * static_cast<double>(std::max<int64_t>(1, k.steps)),
            .dtypes = dtypes});
}

}  // namespace

TEST_CASE("recurrent layers follow their equations") {
  int number = 0;
  for (const Kind kind : kinds)
    for (const RecurrentCase& k :
         {RecurrentCase{.kind = kind},
          RecurrentCase{.kind = kind, .steps = 3, .batch = 2, .in = 5, .cells = 4},
          RecurrentCase{.kind = kind, .steps = 2, .batch = 1, .in = 3, .cells = 17},
          RecurrentCase{.kind = kind, .steps = 2, .batch = 9, .in = 2, .cells = 33},
          RecurrentCase{.kind = kind, .steps = 0, .batch = 2, .in = 3, .cells = 4},
          RecurrentCase{.kind = kind, .steps = 3, .batch = 0, .in = 3, .cells = 4}})
      if (is_sampled(number++)) check(k);
}

TEST_CASE("recurrent layers in reverse, and of different lengths") {
  int number = 0;
  for (const Kind kind : kinds)
    for (const bool reverse : {false, true}) {
      RecurrentCase k{
          .kind = kind, .steps = 5, .batch = 4, .in = 2, .cells = 6, .reverse = reverse};
      const std::vector<std::vector<int64_t>> each = {{}, {5, 1, 0, 3}, {0, 0, 0, 0}};
      for (const std::vector<int64_t>& lengths : each) {
        k.lengths = lengths;
        if (is_sampled(number++)) check(k);
      }
    }
}

TEST_CASE("recurrent layers without biases and initial state, several directions over one x") {
  for (const Kind kind : kinds) {
    const RecurrentCase k{.kind = kind, .steps = 4, .batch = 3, .in = 3, .cells = 300};
    RecurrentCase back = k;
    back.reverse = true;
    Variables v;
    References in;
    for (const Shape& shape : k.inputs()) {
      const double range = v.size() < 3 ? 0.1 : 0;
      v.emplace_back(
          random_reference(shape, 1 + v.size(), -range, range).tensor(f32, test_device()), true);
      in.push_back(Reference::of(v.back().data()));
    }
    RecurrentDirectionVariables both[] = {direction_of(k, v), direction_of(back, v)};
    for (RecurrentDirectionVariables& d : both)
      d.weights.bias_ih = d.weights.bias_hh = d.h0 = Variable();
    const auto states = run(k, v[0], both);
    check_close("forward", Reference::of(joined(states[0]).data()), recurrent_of(k, in), 1e-5);
    check_close("reverse", Reference::of(joined(states[1]).data()), recurrent_of(back, in), 1e-5);
    const Variable all = concat({joined(states[0]), joined(states[1])}, 0);
    const Tensor dy = random_reference(all.shape(), 7).tensor(f32, test_device());
    all.backward(dy);
    const Reference dx = Reference::of(v[0].grad()), dhh = Reference::of(v[2].grad());
    for (const Variable& each : v) each.zero_grad();
    concat({joined(run(k, v[0], {&both[0], 1})[0]), joined(run(k, v[0], {&both[1], 1})[0])}, 0)
        .backward(dy);
    check_close("dx", dx, Reference::of(v[0].grad()), 1e-5);
    check_close("dhh", dhh, Reference::of(v[2].grad()), 1e-5 * largest(dhh));
  }
}

TEST_CASE("recurrent layers: what stands beyond a sequence's length reaches no result") {
  const int64_t steps = 5, batch = 3, in = 4, cells = 8;
  const std::vector<int64_t> ends{2, 5, 0};
  const Tensor lengths = Tensor::from<int64_t>(std::span<const int64_t>(ends), {batch});
  for (const Kind kind : kinds)
    for (const DType dtype : {f64, f32, f16, bf16})
      for (const bool reverse : {false, true}) {
        CAPTURE(to_string(dtype));
        const int64_t sums = kind == Kind::gru ? 3 * cells : cells;
        const auto tensor = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
        const RecurrentDirection d{
            .weights = {.ih = tensor(random_reference({sums, in}, 1, -0.5, 0.5)),
                        .hh = tensor(random_reference({sums, cells}, 2, -0.5, 0.5)),
                        .bias_ih = tensor(random_reference({sums}, 5)),
                        .bias_hh = tensor(random_reference({sums}, 6))},
            .reverse = reverse};
        const Tensor dy = tensor(random_reference({steps, batch, cells}, 4));
        const auto all = [&](double beyond) {
          Reference x = random_reference({steps, batch, in}, 3);
          for (int64_t b = 0; b < batch; ++b)
            for (int64_t t = ends[static_cast<size_t>(b)]; t < steps; ++t)
              for (int64_t i = 0; i < in; ++i) x.at({t, b, i}) = beyond;
          const RecurrentUpstream up{dy, {}};
          std::vector<RecurrentResult> results;
          RecurrentBackward grads;
          if (kind == Kind::gru) {
            results = gru(tensor(x), {&d, 1}, lengths);
            grads = gru_backward(tensor(x), {&d, 1}, lengths, results, {&up, 1});
          } else {
            const Nonlinearity f = kind == Kind::relu ? Nonlinearity::relu : Nonlinearity::tanh;
            results = rnn(tensor(x), {&d, 1}, f, lengths);
            grads = rnn_backward(tensor(x), {&d, 1}, f, lengths, results, {&up, 1});
          }
          const RecurrentWeights& w = grads.directions[0].weights;
          std::vector<double> values;
          for (const Tensor& part : {results[0].y, results[0].h_n, grads.x, w.ih, w.hh, w.bias_ih,
                                     w.bias_hh, grads.directions[0].h0}) {
            const std::vector<double> more = Reference::of(part).values;
            values.insert(values.end(), more.begin(), more.end());
          }
          return values;
        };
        const std::vector<double> clean = all(0);
        CHECK(all(std::numeric_limits<double>::quiet_NaN()) == clean);
        CHECK(all(std::numeric_limits<double>::infinity()) == clean);
      }
}

TEST_CASE("recurrent layers: NaN stays in its sequence") {
  for (const Kind kind : kinds) {
    const RecurrentCase k{.kind = kind, .steps = 4, .batch = 3, .in = 2, .cells = 20};
    Variables v;
    for (const Shape& shape : k.inputs())
      v.emplace_back(random_reference(shape, 1 + v.size(), -0.25, 0.25).tensor(f32, test_device()));
    const RecurrentDirectionVariables d = direction_of(k, v);
    const Reference clean = Reference::of(run(k, v[0], {&d, 1})[0].y.data());
    Reference x = Reference::of(v[0].data());
    x.at({2, 1, 0}) = std::numeric_limits<double>::quiet_NaN();
    const Reference y = Reference::of(run(k, x.tensor(f32, test_device()), {&d, 1})[0].y.data());
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t b = 0; b < 3; ++b)
        for (int64_t u = 0; u < 20; ++u) {
          if (b == 1 && t >= 2) {
            CHECK(std::isnan(y.at({t, b, u})));
          } else {
            CHECK(y.at({t, b, u}) == clean.at({t, b, u}));
          }
        }
  }
}

TEST_CASE("recurrent layers refuse what does not fit") {
  const auto zero = [](const Shape& shape) { return zeros(shape, f32, test_device()); };
  RecurrentDirection d{.weights = {.ih = zero({6, 3}), .hh = zero({6, 2})}};
  const Tensor x = zero({4, 5, 3});
  CHECK_THROWS_WITH_AS(gru(zero({4, 3}), {&d, 1}), "gru: x [4, 3] is not [steps, batch, inputs]",
                       Error);
  CHECK_THROWS_WITH_AS(gru(x, {}), "gru: no direction", Error);
  CHECK_THROWS_WITH_AS(gru(zero({4, 5, 2}), {&d, 1}),
                       "gru: weight_ih [6, 3] where [6, 2] is expected", Error);
  CHECK_THROWS_WITH_AS(rnn(x, {&d, 1}), "rnn: weight_hh [6, 2] where [6, 6] is expected", Error);
  d.h0 = zero({4, 2});
  CHECK_THROWS_WITH_AS(gru(x, {&d, 1}), "gru: h0 [4, 2] where [5, 2] is expected", Error);
  d.h0 = {};
  const auto limits = [](std::initializer_list<int64_t> all) {
    return Tensor::from<int64_t>(all, {static_cast<int64_t>(all.size())});
  };
  CHECK_THROWS_WITH_AS(gru(x, {&d, 1}, limits({1, 2})), "gru: lengths [2] for 5 sequences", Error);
  CHECK_THROWS_WITH_AS(gru(x, {&d, 1}, limits({1, 2, 9, 0, 0})),
                       "gru: sequence 2 of length 9 among 4 steps", Error);
  const auto results = gru(x, {&d, 1});
  const RecurrentUpstream up{zero({4, 5, 3}), {}};
  CHECK_THROWS_WITH_AS(gru_backward(x, {&d, 1}, {}, results, {&up, 1}),
                       "gru_backward: the gradient of y, f32 [4, 5, 3], for f32 [4, 5, 2]", Error);
  const RecurrentUpstream none;
  CHECK_THROWS_WITH_AS(
      gru_backward(zero({3, 5, 3}), {&d, 1}, {}, results, {&none, 1}),
      "gru_backward: the result's hidden is of another call: this one's is [4, 5, 2] of f32",
      Error);
}
