#pragma once
/** @file What the tests of optimisers share: parameters with their state, and steps of parameters
 * of all shapes. A `Naive` has the types `Parameter` and `Options`, the weights `w` in double,
 *  `step(t, gradient)`, the rule in double, and `run(parameters, t, options, clip)`, the optimiser
 *  under test. */
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/moments.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace bs::test {

template <class Options_>
struct NaiveMoments {
  using Options = Options_;
  using Parameter = MomentParameter;
  Options o;
  std::vector<double> w, m, v;

  NaiveMoments(const Options& options, const Reference& start)
      : o(options), w(start.values), m(w.size()), v(w.size()) {}
  /// Takes in the gradient of element i; what the paper on Adam would subtract of it.
  double direction(size_t i, int t, double g) {
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
    const double m_hat = m[i] / (1 - std::pow(o.beta1, t));
    const double v_hat = v[i] / (1 - std::pow(o.beta2, t));
    return m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

/** @brief A parameter with the state that `options` ask for, all zero. */
template <class Parameter, class Options>
Parameter fresh_parameter(const Reference& start, DType dtype, const Options& options,
                          bool master = false) {
  Parameter p;
  p.value = start.tensor(dtype, test_device());
  const auto names = state_names(options);
  for (size_t i = 0; i < names.size(); ++i) {
    Shape shape = start.shape;
    if constexpr (requires { Parameter::state_shape(i, shape); }) {
      const auto other = Parameter::state_shape(i, shape);
      if (!other) continue;
      shape = *other;
    }
    if (names[i]) p.*Parameter::states[i] = zeros(shape, dtype == f64 ? f64 : f32, test_device());
  }
  if (master) p.master = start.tensor(f32, test_device());
  return p;
}

/** @brief One with two moments. */
struct TwoMoments {};
inline std::array<const char*, 2> state_names(const TwoMoments&) { return moment_names; }
inline MomentParameter moment_parameter(const Reference& start, DType dtype, bool master = false) {
  return fresh_parameter<MomentParameter>(start, dtype, TwoMoments(), master);
}

inline double worst(const Tensor& actual, const std::vector<double>& expected) {
  const Reference a = Reference::of(actual);
  double w = 0;
  for (size_t i = 0; i < expected.size(); ++i) w = std::max(w, std::abs(a[i] - expected[i]));
  return w;
}

/** @brief Ten steps of parameters of all shapes at once, against the naive rule. */
template <class Naive>
void check_steps(const typename Naive::Options& options, DType dtype, bool master, double tolerance,
                 const std::vector<Shape>& shapes = {
                     {3, 5}, {1}, {0}, {70001}, {64, 64}, {2, 3, 7}, {}}) {
  CAPTURE(to_string(dtype));
  CAPTURE(master);
  using Parameter = typename Naive::Parameter;
  std::vector<Parameter> parameters;
  std::vector<Naive> naive;
  for (const Shape& shape : shapes) {
    Reference start = random_reference(shape, 5);
    start = Reference::of(start.tensor(dtype, Device::cpu()));
    parameters.push_back(fresh_parameter<Parameter>(start, dtype, options, master));
    naive.emplace_back(options, start);
  }
  for (int t = 1; t <= 10; ++t) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      Tensor g = random_reference(shapes[i], static_cast<uint64_t>(100 * t) + i)
                     .tensor(dtype, test_device());
      naive[i].step(t, Reference::of(g).values);
      parameters[i].gradient = g;
    }
    Naive::run(parameters, t, options, {}, {});
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

/** @brief A step with a gradient clipped to a norm of 0.5, against the rule in double. */
template <class Naive>
void check_clip(const typename Naive::Options& options, const Shape& shape = {100}) {
  const Reference start = random_reference(shape, 1);
  auto p = fresh_parameter<typename Naive::Parameter>(start, f64, options);
  p.gradient = random_reference(shape, 2).tensor(f64, test_device());
  std::vector<double> g = Reference::of(p.gradient).values;
  double norm = 0;
  for (double v : g) norm += v * v;
  for (double& v : g) v *= 0.5 / (std::sqrt(norm) + 1e-6);
  Naive naive(options, start);
  naive.step(1, g);
  const GradientClip clip{grad_norm(std::vector{p.gradient}), 0.5, true};
  Naive::run(std::vector{p}, 1, options, clip, {});
  CHECK(worst(p.value, naive.w) <= 1e-13);
  if constexpr (requires { p.first_moment; }) CHECK(worst(p.first_moment, naive.m) <= 1e-15);
}

/** @brief A norm that is not finite leaves a parameter and its state as they are, when asked to;
 *  a norm of zero does not. */
template <class Naive>
void check_skip(const typename Naive::Options& options, DType dtype, const Shape& shape = {100}) {
  using Parameter = typename Naive::Parameter;
  auto p = fresh_parameter<Parameter>(random_reference(shape, 1), dtype, options);
  p.gradient = random_reference(shape, 2).tensor(dtype, test_device());
  const std::vector<double> before = Reference::of(p.value).values;
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Tensor norm = Tensor::from<double>({bad}, {}).to(test_device());
    Naive::run(std::vector{p}, 1, options, {norm, 1, true}, {});
    CHECK(Reference::of(p.value).values == before);
    for (const auto member : Parameter::states) {
      if (!(p.*member).defined()) continue;
      for (const double v : Reference::of(p.*member).values) CHECK(v == 0);
    }
  }
  Naive::run(std::vector{p}, 1, options, {zeros({}, f64, test_device()), 1, true}, {});
  CHECK(Reference::of(p.value).values != before);
}

}  // namespace bs::test
