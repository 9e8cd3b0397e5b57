#include <bs/kernels/lstm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

// On a GPU, 128 cells of 16-bit types run in the kernel whose words wait as a pair of NaNs: one
// that is the result must neither be taken for such a pair nor reach other sequences.
TEST_CASE("lstm: NaN stays in its sequence") {
  const int64_t steps = 5, batch = 3, in = 8, cells = 128;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f32, f16, bf16}) {
    CAPTURE(to_string(dtype));
    uint64_t seed = 1;
    const auto values = [&](const Shape& shape) {
      return random_reference(shape, seed++, -0.125, 0.125);
    };
    const auto tensor = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
    const LSTMDirection d{.weights = {.ih = tensor(values({4 * cells, in})),
                                      .hh = tensor(values({4 * cells, cells}))}};
    Reference x = values({steps, batch, in}), dy = values({steps, batch, cells});
    const auto run = [&] {
      const auto results = lstm(tensor(x), {&d, 1});
      const LSTMUpstream up{tensor(dy), {}, {}, {}};
      const LSTMBackward b = lstm_backward(tensor(x), {&d, 1}, {}, results, {&up, 1});
      return std::pair{Reference::of(results[0].y), Reference::of(b.x)};
    };
    const auto [y, dx] = run();
    x.at({2, 1, 3}) = nan;
    dy.at({4, 1, 7}) = nan;
    const auto [y_nan, dx_nan] = run();
    for (int64_t t = 0; t < steps; ++t)
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t u = 0; u < cells; ++u) {
          if (b == 1 && t >= 2) {
            CHECK(std::isnan(y_nan.at({t, b, u})));
          } else {
            CHECK(y_nan.at({t, b, u}) == y.at({t, b, u}));
          }
        }
        for (int64_t i = 0; i < in; ++i)
          CHECK((b == 1 ? std::isnan(dx_nan.at({t, b, i}))
                        : dx_nan.at({t, b, i}) == dx.at({t, b, i})));
      }
  }
}

TEST_CASE("lstm: what stands beyond a sequence's length reaches no gradient") {
  const int64_t steps = 5, batch = 3, in = 4, cells = 8;
  const std::vector<int64_t> ends{5, 2, 0};
  const Tensor lengths = Tensor::from<int64_t>(std::span<const int64_t>(ends), {batch});
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(to_string(dtype));
    const auto tensor = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
    const LSTMDirection d{.weights = {.ih = tensor(random_reference({4 * cells, in}, 1)),
                                      .hh = tensor(random_reference({4 * cells, cells}, 2))}};
    const Reference clean = random_reference({steps, batch, in}, 3),
                    dy = random_reference({steps, batch, cells}, 4);
    const auto gradients = [&](double beyond) {
      Reference x = clean;
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = ends[static_cast<size_t>(b)]; t < steps; ++t)
          for (int64_t i = 0; i < in; ++i) x.at({t, b, i}) = beyond;
      const auto results = lstm(tensor(x), {&d, 1}, lengths);
      const LSTMUpstream up{tensor(dy), {}, {}, {}};
      const LSTMBackward all = lstm_backward(tensor(x), {&d, 1}, lengths, results, {&up, 1});
      const auto layers = lstm_layers(tensor(x), {&d, 1}, lengths);
      const LSTMBackward one = lstm_layers_backward(tensor(x), {&d, 1}, lengths, layers, {&up, 1});
      std::vector<double> values;
      for (const LSTMBackward* b : {&all, &one})
        for (const Tensor& g : {b->x, b->directions[0].weights.ih, b->directions[0].weights.hh,
                                b->directions[0].h0}) {
          const std::vector<double> more = Reference::of(g).values;
          values.insert(values.end(), more.begin(), more.end());
        }
      return values;
    };
    const std::vector<double> right = gradients(0);
    CHECK(gradients(std::numeric_limits<double>::quiet_NaN()) == right);
    CHECK(gradients(std::numeric_limits<double>::infinity()) == right);
  }
}
