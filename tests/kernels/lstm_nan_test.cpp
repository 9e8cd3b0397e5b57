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
