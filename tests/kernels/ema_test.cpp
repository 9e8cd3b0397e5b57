#include <bs/kernels/ema.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

TEST_CASE("ema: the average moves by a share of the distance") {
  for (DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(to_string(dtype));
    const DType state = dtype == f64 ? f64 : f32;
    std::vector<EmaParameter> parameters;
    std::vector<std::vector<double>> expected;
    for (const Shape& shape : {Shape{3, 5}, Shape{0}, Shape{20001}, Shape{}}) {
      const Tensor value = random_reference(shape, 1).tensor(dtype, test_device());
      const Tensor average = random_reference(shape, 2).tensor(state, test_device());
      parameters.push_back({value, average});
      const Reference v = Reference::of(value);
      std::vector<double> e = Reference::of(average).values;
      for (int step = 0; step < 3; ++step)
        for (size_t i = 0; i < e.size(); ++i) e[i] = 0.9 * e[i] + (1 - 0.9) * v[i];
      expected.push_back(e);
    }
    for (int step = 0; step < 3; ++step) ema(parameters, 0.9);
    for (size_t k = 0; k < expected.size(); ++k) {
      const Reference actual = Reference::of(parameters[k].average);
      double worst = 0;
      for (size_t i = 0; i < expected[k].size(); ++i)
        worst = std::max(worst, std::abs(actual[i] - expected[k][i]));
      CHECK(worst <= 8 * epsilon(state));
    }
  }
}

TEST_CASE("ema refuses what does not fit") {
  const Tensor value = Reference({2}).tensor(bf16, test_device());
  const Tensor average = Reference({2}).tensor(f32, test_device());
  CHECK_THROWS_WITH_AS(ema(std::vector{EmaParameter{value, average}}, 1.5), "ema: a decay of 1.5",
                       Error);
  CHECK_THROWS_WITH_AS(ema(std::vector{EmaParameter{value, value}}, 0.5),
                       "ema: average [2] of bf16 with strides [1] for a parameter [2] of bf16",
                       Error);
  ema({}, 0.5);
}
