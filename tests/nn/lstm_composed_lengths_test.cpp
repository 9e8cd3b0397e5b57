#include <bs/nn/lstm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

Tensor values(const Shape& shape, uint64_t seed) {
  return random_reference(shape, seed).tensor(f64, test_device());
}

}  // namespace

TEST_CASE("nn::LSTM of single operations: steps beyond a sequence's length reach no gradient") {
  for (const bool quantize : {false, true})
    for (const int input_factors : {0, 2}) {
      if (quantize && input_factors > 0) continue;
      const nn::LSTM lstm({.input = 6,
                           .hidden = 8,
                           .bidirectional = true,
                           .layer_norm = !quantize,
                           .quantize = quantize,
                           .input_factors = input_factors,
                           .dtype = f64,
                           .device = test_device()});
      const auto run = [&](double beyond) {
        Reference x = random_reference({4, 2, 6}, 1);
        for (int64_t t = 2; t < 4; ++t)
          for (int64_t i = 0; i < 6; ++i) x.at({t, 1, i}) = beyond;
        for (const Variable& p : lstm.parameters()) p.zero_grad();
        const Variable v(x.tensor(f64, test_device()), true);
        const Variable y = lstm.forward(v, {}, Tensor::from<int64_t>({4, 2})).y;
        y.backward(values(y.shape(), 2));
        std::vector<std::vector<double>> all = {Reference::of(y.data()).values,
                                                Reference::of(v.grad()).values};
        for (const Variable& p : lstm.parameters()) all.push_back(Reference::of(p.grad()).values);
        return all;
      };
      const auto right = run(0);
      CHECK(run(std::numeric_limits<double>::quiet_NaN()) == right);
      CHECK(run(std::numeric_limits<double>::infinity()) == right);
    }
}

TEST_CASE("composed_lstm: an input in place of its product, of any values beyond the lengths") {
  Generator generator;
  const auto run = [&](double beyond) {
    Reference in = random_reference({3, 2, 16}, 1);
    for (int64_t u = 0; u < 16; ++u) in.at({2, 1, u}) = beyond;
    const Variable input(in.tensor(f64, test_device()), true), hh(values({16, 4}, 2), true);
    const LSTMDirectionVariables d{.weights = {.ih = {}, .hh = hh}, .input = input};
    const LSTMStates s = nn::composed_lstm(Variable(values({3, 2, 1}, 3)), d,
                                           Tensor::from<int64_t>({3, 2}), {}, false, generator);
    s.y.backward(values(s.y.shape(), 4));
    return std::pair{Reference::of(input.grad()).values, Reference::of(hh.grad()).values};
  };
  CHECK(run(std::numeric_limits<double>::quiet_NaN()) == run(0));
}

TEST_CASE("nn::LSTM of single operations refuses lengths as the fused layer does") {
  const Tensor x = random_reference({4, 2, 3}, 1).tensor(f32, test_device());
  for (const bool layer_norm : {false, true}) {
    CAPTURE(layer_norm);
    const nn::LSTM lstm(
        {.input = 3, .hidden = 8, .layer_norm = layer_norm, .device = test_device()});
    const auto refuses = [&](const Tensor& lengths, const char* text) {
      CHECK_THROWS_WITH_AS(lstm.forward(x, {}, lengths), text, Error);
    };
    refuses(Tensor::from<int64_t>({4, 9}), "lstm: sequence 1 of length 9 among 4 steps");
    refuses(Tensor::from<int64_t>({-2, 4}), "lstm: sequence 0 of length -2 among 4 steps");
    refuses(Tensor::from<int32_t>({4, 2}),
            "lstm: lengths of i32 on cpu where i64 in host memory is expected");
    refuses(Tensor::from<int64_t>({4, 2}, {1, 2}), "lstm: lengths [1, 2] for 2 sequences");
    refuses(Tensor::from<int64_t>({4, 2, 1}), "lstm: lengths [3] for 2 sequences");
  }
}
