#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/lamb.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// The rule in double, a tensor at a time.
struct NaiveLamb {
  LambOptions o;
  std::vector<double> w, m, v;

  NaiveLamb(LambOptions options, const Reference& start)
      : o(options), w(start.values), m(w.size()), v(w.size()) {}
  void step(int t, const std::vector<double>& gradient) {
    std::vector<double> u(w.size());
    double w_squares = 0, u_squares = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(o.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(o.beta2, t));
      u[i] = m_hat / (std::sqrt(v_hat) + o.eps) + o.weight_decay * w[i];
      w_squares += w[i] * w[i];
      u_squares += u[i] * u[i];
    }
    const bool adapts = (o.weight_decay != 0 || o.always_adapt) && w_squares > 0 && u_squares > 0;
    const double ratio = adapts ? std::sqrt(w_squares) / std::sqrt(u_squares) : 1;
    for (size_t i = 0; i < w.size(); ++i) w[i] -= o.learning_rate * ratio * u[i];
  }
};

LambParameter parameter(const Reference& start, DType dtype, bool master) {
  const DType state = dtype == f64 ? f64 : f32;
  LambParameter p;
  p.value = start.tensor(dtype, test_device());
  p.first_moment = zeros(start.shape, state, test_device());
  p.second_moment = zeros(start.shape, state, test_device());
  if (master) p.master = start.tensor(f32, test_device());
  return p;
}

double worst(const Tensor& actual, const std::vector<double>& expected) {
  const Reference a = Reference::of(actual);
  double w = 0;
  for (size_t i = 0; i < expected.size(); ++i) w = std::max(w, std::abs(a[i] - expected[i]));
  return w;
}

const std::vector<Shape> shapes = {{3, 5}, {1}, {0}, {70001}, {64, 64}, {2, 3, 7}, {}};
const LambOptions options = {
    .learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};

void check_steps(const LambOptions& o, DType dtype, bool master, double tolerance) {
  CAPTURE(to_string(dtype));
  CAPTURE(master);
  std::vector<LambParameter> parameters;
  std::vector<NaiveLamb> naive;
  for (const Shape& shape : shapes) {
    Reference start = random_reference(shape, 5);
    start = Reference::of(start.tensor(dtype, Device::cpu()));
    parameters.push_back(parameter(start, dtype, master));
    naive.emplace_back(o, start);
  }
  for (int t = 1; t <= 10; ++t) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      Tensor g = random_reference(shapes[i], static_cast<uint64_t>(100 * t) + i)
                     .tensor(dtype, test_device());
      naive[i].step(t, Reference::of(g).values);
      parameters[i].gradient = g;
    }
    lamb(parameters, t, o);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    CAPTURE(to_string(shapes[i]));
    CHECK(worst(parameters[i].value, naive[i].w) <= tolerance);
    if (!master) continue;
    CHECK(worst(parameters[i].master, naive[i].w) <= 1e-5);
    CHECK(Reference::of(cast(parameters[i].master, dtype)).values ==
          Reference::of(parameters[i].value).values);
  }
}

}  // namespace

TEST_CASE("lamb follows the rule") {
  check_steps(options, f64, false, 1e-13);
  check_steps(options, f32, false, 1e-5);  // ten steps, each rounded to 2^-24 of values around 1
  check_steps(options, f16, true, 1e-5 + epsilon(f16));
  check_steps(options, bf16, true, 1e-5 + epsilon(bf16));
  LambOptions o = options;
  o.weight_decay = 0;
  check_steps(o, f64, false, 1e-13);
  o.always_adapt = true;
  check_steps(o, f64, false, 1e-13);
}

TEST_CASE("lamb: a tensor of zeros steps as Adam does, one without gradient stays") {
  LambParameter p = parameter(Reference({2, 2}), f64, false);
  p.gradient = random_reference({2, 2}, 1).tensor(f64, test_device());
  const LambParameter still = parameter(random_reference({3}, 1), f64, false);
  NaiveLamb naive(options, Reference({2, 2}));
  naive.step(1, Reference::of(p.gradient).values);
  lamb(std::vector{still, p}, 1, options);
  CHECK(worst(p.value, naive.w) <= 1e-15);
  CHECK(Reference::of(still.value).values == random_reference({3}, 1).values);
  lamb({}, 1, options);
}

TEST_CASE("lamb clips, and skips a step whose norm is not finite") {
  const Reference start = random_reference({100}, 1);
  LambParameter p = parameter(start, f64, false);
  p.gradient = random_reference({100}, 2).tensor(f64, test_device());
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Tensor norm = Tensor::from<double>({bad}, {}).to(test_device());
    lamb(std::vector{p}, 1, options, {norm, 1, true});
    CHECK(Reference::of(p.value).values == start.values);
    CHECK(Reference::of(p.first_moment).values == std::vector<double>(100));
  }
  std::vector<double> g = Reference::of(p.gradient).values;
  double norm = 0;
  for (double v : g) norm += v * v;
  for (double& v : g) v *= 0.5 / (std::sqrt(norm) + 1e-6);
  NaiveLamb naive(options, start);
  naive.step(1, g);
  lamb(std::vector{p}, 1, options, {grad_norm(std::vector{p.gradient}), 0.5, true});
  CHECK(worst(p.value, naive.w) <= 1e-13);
}

TEST_CASE("lamb refuses what does not fit") {
  LambParameter p = parameter(Reference({2, 3}), f32, false);
  p.gradient = zeros({2, 3}, f32, test_device());
  CHECK_THROWS_WITH_AS(lamb(std::vector{p}, 0, options), "lamb: step 0 comes before the first",
                       Error);
  CHECK_THROWS_WITH_AS(lamb(std::vector{p}, 1, {.beta1 = 1}),
                       "lamb: betas 1 and 0.999 are not within [0, 1)", Error);
  p.first_moment = {};
  CHECK_THROWS_WITH_AS(lamb(std::vector{p}, 1, options),
                       "lamb: a parameter [2, 3] has no first_moment", Error);
}
