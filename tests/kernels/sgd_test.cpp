#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/sgd.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

namespace {

/// PyTorch's rule without dampening, in double, element by element.
struct NaiveSgd {
  SgdOptions o;
  std::vector<double> w, b;

  NaiveSgd(SgdOptions options, const Reference& start) : o(options), w(start.values), b(w.size()) {}
  void step(const std::vector<double>& gradient) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + o.weight_decay * w[i];
      b[i] = o.momentum * b[i] + g;
      const double direction = o.nesterov ? g + o.momentum * b[i] : b[i];
      w[i] -= o.learning_rate * (o.momentum == 0 ? g : direction);
    }
  }
};

double worst(const Tensor& actual, const std::vector<double>& expected) {
  const Reference a = Reference::of(actual);
  double w = 0;
  for (size_t i = 0; i < expected.size(); ++i) w = std::max(w, std::abs(a[i] - expected[i]));
  return w;
}

void check_steps(const SgdOptions& options, DType dtype, bool master, double tolerance) {
  CAPTURE(to_string(dtype));
  CAPTURE(master);
  const std::vector<Shape> shapes = {{3, 5}, {1}, {0}, {70001}, {}};
  std::vector<SgdParameter> parameters;
  std::vector<NaiveSgd> naive;
  for (const Shape& shape : shapes) {
    Reference start = random_reference(shape, 5);
    start = Reference::of(start.tensor(dtype, Device::cpu()));
    SgdParameter p;
    p.value = start.tensor(dtype, test_device());
    if (options.momentum != 0) p.momentum = zeros(shape, dtype == f64 ? f64 : f32, test_device());
    if (master) p.master = start.tensor(f32, test_device());
    parameters.push_back(p);
    naive.emplace_back(options, start);
  }
  for (uint64_t t = 1; t <= 10; ++t) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].gradient =
          random_reference(shapes[i], 100 * t + i).tensor(dtype, test_device());
      naive[i].step(Reference::of(parameters[i].gradient).values);
    }
    sgd(parameters, options);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    CHECK(worst(parameters[i].value, naive[i].w) <= tolerance);
    if (master) CHECK(worst(parameters[i].master, naive[i].w) <= 1e-5);
  }
}

}  // namespace

TEST_CASE("sgd follows the rule") {
  for (const SgdOptions& options :
       {SgdOptions{.learning_rate = 0.02}, SgdOptions{.learning_rate = 0.02, .weight_decay = 0.1},
        SgdOptions{.learning_rate = 0.02, .momentum = 0.9},
        SgdOptions{
            .learning_rate = 0.02, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    check_steps(options, f64, false, 1e-13);
    check_steps(options, f32, false, 1e-5);
    // Masters lose nothing; what is left is one rounding of a value below 2.
    check_steps(options, f16, true, 1e-5 + epsilon(f16));
    check_steps(options, bf16, true, 1e-5 + epsilon(bf16));
    check_steps(options, bf16, false, 10 * epsilon(bf16));
  }
}

TEST_CASE("sgd clips, and passes over what has no gradient") {
  const Reference start = random_reference({100}, 1);
  SgdParameter still{start.tensor(f64, test_device()), {}, {}, {}};
  SgdParameter moved{start.tensor(f64, test_device()),
                     random_reference({100}, 2).tensor(f64, test_device()),
                     {},
                     {}};
  const SgdOptions options = {.learning_rate = 0.5};
  const double norm = grad_norm(std::vector{moved.gradient}).item();
  sgd(std::vector{still, moved}, options, {full({}, norm, f64, test_device()), 0.25});
  std::vector<double> expected = start.values;
  const Reference g = Reference::of(moved.gradient);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] -= 0.5 * g[i] * 0.25 / (norm + 1e-6);
  CHECK(worst(moved.value, expected) <= 1e-14);
  CHECK(Reference::of(still.value).values == start.values);
}

TEST_CASE("sgd refuses what does not fit") {
  SgdParameter p;
  p.value = zeros({2}, f32, test_device());
  p.gradient = zeros({2}, f32, test_device());
  CHECK_THROWS_WITH_AS(sgd(std::vector{p}, {.nesterov = true}),
                       "sgd: nesterov needs a momentum, not 0", Error);
  CHECK_THROWS_WITH_AS(sgd(std::vector{p}, {.momentum = 0.9}),
                       "sgd: a parameter [2] has no momentum", Error);
  p.gradient = zeros({2}, f64, test_device());
  CHECK_THROWS_WITH_AS(sgd(std::vector{p}, {}),
                       "sgd: gradient [2] of f64 for a parameter [2] of f32", Error);
  p.value = zeros({2}, i32, test_device());
  CHECK_THROWS_WITH_AS(sgd(std::vector{p}, {}), "sgd: parameter of dtype i32", Error);
}
