#include <bs/autograd/dropout.h>
#include <bs/kernels/activation.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/dropout.h>
#include <bs/kernels/fill.h>
#include <bs/lib/philox.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// Word i % 4 of Philox block i / 4 decides on element i, of every dtype.
bool stays(size_t i, double p, RandomState state) {
  const PhiloxBlock block = philox(state.seed, i / 4, state.offset);
  return static_cast<double>(block.word[i % 4]) >= std::floor(p * 0x1p32);
}

Reference dropped(Reference r, double p, RandomState state) {
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = stays(i, p, state) ? r[i] / (1 - p) : 0;
  return r;
}

}  // namespace

TEST_CASE("dropout") {
  for (const double p : {0.0, 0.1, 0.5, 0.75, 1.0})
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0, 4}, Shape{1}, Shape{2, 513}})
      check_op({.name = "dropout",
                .inputs = {shape},
                .op =
                    [=](const Variables& v) {
                      Generator generator(42);
                      generator.next();
                      return dropout(v[0], p, generator);
                    },
                .reference =
                    [=](const References& in) {
                      if (p == 1) return Reference(shape);
                      return dropped(in[0], p, {42, 1});
                    }});
}

TEST_CASE("activation_dropout drops what the activation gives") {
  const auto of = [](Activation f, double x) {
    if (f == Activation::relu) return std::max(x, 0.0);
    if (f == Activation::gelu) return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  };
  for (const Activation f : {Activation::relu, Activation::gelu, Activation::gelu_tanh})
    for (const double p : {0.0, 0.3, 1.0})
      for (const Shape& shape : {Shape{3, 5}, Shape{0, 4}, Shape{2, 515}}) {
        check_op({.name = "activation_dropout " + to_string(f),
                  .inputs = {shape},
                  .op =
                      [=](const Variables& v) {
                        Generator generator(42);
                        return activation_dropout(v[0], f, p, generator);
                      },
                  .reference =
                      [=](const References& in) {
                        Reference r = in[0];
                        for (double& value : r.values) value = of(f, value);
                        return p == 1 ? Reference(shape) : dropped(r, p, {42, 0});
                      },
                  .low = f == Activation::relu ? .1 : -3,
                  .high = 3});
      }
  const Tensor x = random_reference({4, 66}, 8).tensor(f32, test_device());
  const Tensor across = random_reference({66, 4}, 9).tensor(f32, test_device()).transpose(0, 1);
  const RandomState state{5, 2};
  for (const Activation f : {Activation::relu, Activation::gelu, Activation::gelu_tanh}) {
    // In f32 nothing is rounded between the two, and relu's result stands for its input.
    const Tensor y = activation_dropout(across, f, .4, state);
    const Tensor active = f == Activation::relu
                              ? relu(across)
                              : gelu(across, f == Activation::gelu ? Gelu::erf : Gelu::tanh);
    CHECK(Reference::of(y).values == Reference::of(dropout(active, .4, state)).values);
    const Tensor saved = f == Activation::relu ? y : across;
    CHECK(Reference::of(activation_dropout_backward(saved, x, f, .4, state)).values ==
          Reference::of(activation_dropout_backward(across, x, f, .4, state)).values);
  }
  CHECK_THROWS_WITH_AS(activation_dropout(x, Activation::silu, .4, state),
                       "activation_dropout: silu is none of relu, gelu and gelu_tanh", Error);
  CHECK_THROWS_WITH_AS(activation_dropout(x, Activation::relu, 1.5, state),
                       "activation_dropout: probability 1.5 is not within [0, 1]", Error);
}

TEST_CASE("activation_dropout_backward of a dy that only the slope keeps within f16") {
  const Tensor x = Tensor::from<float>({-8, -40, 1, -0.5, -8, 3, -30, 0.1F}).to(test_device());
  const RandomState state{5, 2};
  for (const Activation f : {Activation::relu, Activation::gelu, Activation::gelu_tanh}) {
    const auto run = [&](DType dtype) {
      const Tensor dy = full({8}, 40000, dtype, test_device());
      return Reference::of(activation_dropout_backward(cast(x, dtype), dy, f, .5, state));
    };
    const Reference dx = run(f16), exact = run(f32);
    for (size_t i = 0; i < 8; ++i) {
      CAPTURE(i);
      if (std::abs(exact[i]) > 65504) {
        CHECK(std::isinf(dx[i]));
      } else {
        CHECK(std::abs(dx[i] - exact[i]) <= 4e-3 * std::abs(exact[i]) + 0x1p-22);
      }
    }
  }
}

TEST_CASE("dropout drops as often as told, anew each time") {
  const Tensor x = ones({100000}, f32, test_device());
  Generator generator(7);
  for (const double p : {0.1, 0.5, 0.9}) {
    const Reference y = Reference::of(dropout(Variable(x), p, generator).data());
    double zeros_seen = 0;
    for (double v : y.values) zeros_seen += v == 0;
    // Five standard deviations.
    CHECK(std::abs(zeros_seen - 1e5 * p) < 5 * std::sqrt(1e5 * p * (1 - p)));
    CHECK(Reference::of(dropout(Variable(x), p, generator).data()).values != y.values);
  }
  CHECK(generator.state() == RandomState{7, 6});
}

TEST_CASE("dropout gives the same elements for any dtype, view and number of threads") {
  const Reference r = random_reference({70, 1100}, 1);
  const RandomState state{3, 9};
  const Reference expected = Reference::of(dropout(r.tensor(f32, test_device()), 0.3, state));
  const int before = threads();
  set_threads(before == 1 ? 3 : 1);
  CHECK(Reference::of(dropout(r.tensor(f32, test_device()), 0.3, state)).values == expected.values);
  set_threads(before);
  for (DType dtype : {f64, f16, bf16}) {
    const Reference y = Reference::of(dropout(r.tensor(dtype, test_device()), 0.3, state));
    size_t differ = 0;
    for (size_t i = 0; i < y.values.size(); ++i) differ += (y[i] == 0) != (expected[i] == 0);
    CHECK(differ == 0);
  }
  // Elements count in row-major order, wherever they lie.
  const Tensor flat = ones({1001}, f32, test_device());
  const Tensor transposed = ones({11, 91}, f32, test_device()).transpose(0, 1);
  const Reference y = dropped(Reference::of(flat), 0.5, state);
  CHECK(Reference::of(dropout(flat, 0.5, state)).values == y.values);
  CHECK(Reference::of(dropout(transposed, 0.5, state)).values == y.values);
  const Tensor shifted = ones({1002}, f32, test_device()).slice(0, 1, 1002);
  CHECK(Reference::of(dropout(shifted, 0.5, state)).values == y.values);
}

TEST_CASE("dropout of nothing, of everything, and of what is not finite") {
  const Tensor x = full({64}, std::numeric_limits<double>::infinity(), f32, test_device());
  CHECK(dropout(x, 0, {}).shares_storage(x));
  Generator generator(1);
  CHECK(dropout(Variable(x), 0, generator).data().shares_storage(x));
  CHECK(generator.state() == RandomState{1, 0});
  CHECK(Reference::of(dropout(x, 1, {})).values == std::vector<double>(64, 0));
  size_t zeros_seen = 0;
  for (double v : Reference::of(dropout(x, 0.5, {})).values) {
    CHECK(!std::isnan(v));
    zeros_seen += v == 0;
  }
  CHECK(zeros_seen > 0);
  CHECK(zeros_seen < 64);
}

TEST_CASE("dropout refuses what it cannot do") {
  const Tensor x = zeros({2}, f32, test_device());
  CHECK_THROWS_WITH_AS(dropout(x, -0.1, RandomState{}),
                       "dropout: probability -0.1 is not within [0, 1]", Error);
  CHECK_THROWS_WITH_AS(dropout(x, 1.5, RandomState{}),
                       "dropout: probability 1.5 is not within [0, 1]", Error);
  CHECK_THROWS_WITH_AS(dropout(zeros({2}, i64), 0.5, RandomState{}),
                       "dropout: dtype i64 is not supported; expected f64, f32, f16 or bf16",
                       Error);
}
