#include <bs/kernels/axpby.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

TEST_CASE("axpby scales and adds tensors of all dtypes at once") {
  std::vector<AxpbyParameter> parameters;
  std::vector<std::vector<double>> expected;
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{3, 3001}}) {
      AxpbyParameter p;
      p.value = random_reference(shape, 1).tensor(dtype, test_device());
      p.gradient = random_reference(shape, 2).tensor(dtype, test_device());
      std::vector<double> sum = Reference::of(p.value).values;
      const Reference x = Reference::of(p.gradient);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = 0.5 * sum[i] - 2 * x[i];
      parameters.push_back(p);
      expected.push_back(sum);
    }
  axpby(parameters, 0.5, -2);
  for (size_t k = 0; k < parameters.size(); ++k) {
    const Reference y = Reference::of(parameters[k].value);
    const double most = 2 * epsilon(parameters[k].value.dtype());
    for (size_t i = 0; i < y.values.size(); ++i) CHECK(std::abs(y[i] - expected[k][i]) <= most);
  }
}

TEST_CASE("axpby takes views, its numbers from the device, and leaves steps out") {
  AxpbyParameter p;
  p.value = ones({2, 3}, f32, test_device());
  p.gradient = random_reference({3, 2}, 1).tensor(f32, test_device()).transpose(0, 1);
  const Reference x = Reference::of(p.gradient);
  const Tensor numbers = Tensor::from<double>({3, 0.5}, {2}).to(test_device());
  axpby(std::vector{p}, 7, 7, {}, numbers);
  Reference y = Reference::of(p.value);
  for (size_t i = 0; i < 6; ++i) CHECK(y[i] == static_cast<float>(3 + 0.5 * x[i]));
  const Tensor bad = Tensor::from<double>({INFINITY}, {}).to(test_device());
  const GradientClip clip{bad, 1, true, 4};
  axpby(std::vector{p}, 7, 7, only_skips(clip));
  CHECK(Reference::of(p.value).values == y.values);
  // Gradients that are clipped already are not clipped once more.
  const GradientClip large{full({}, 1e6, f64, test_device()), 1e-3, true, 4};
  axpby(std::vector{p}, 0, 1, only_skips(large));
  CHECK(Reference::of(p.value).values == x.values);
  CHECK_THROWS_WITH_AS(axpby(std::vector{p}, 1, 1, {}, numbers.slice(0, 0, 1)),
                       doctest::Contains("axpby: numbers [1] of f64, expected [2] of f64"), Error);
}

TEST_CASE("axpby of a gradient that lies over its value takes what was there before") {
  const int64_t n = 5000;
  for (const int64_t shift : {-3, 0, 1}) {
    CAPTURE(shift);
    const Tensor x = random_reference({n + 6}, 4).tensor(f64, test_device());
    const Reference before = Reference::of(x);
    AxpbyParameter p;
    p.value = x.slice(0, 3, n + 3);
    p.gradient = x.slice(0, 3 + shift, n + 3 + shift);
    axpby(std::vector{p}, 0.5, 2);
    const Reference y = Reference::of(x);
    for (int64_t i = 3; i < n + 3; ++i) {
      const auto at = static_cast<size_t>(i), from = static_cast<size_t>(i + shift);
      REQUIRE(y[at] == doctest::Approx(0.5 * before[at] + 2 * before[from]).epsilon(1e-14));
    }
  }
}
