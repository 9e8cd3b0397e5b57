#include <bs/kernels/rmsprop.h>
#include <bs/tests/kernels/optimizer_reference.h>

using namespace bs;
using namespace bs::test;

namespace {

/// The rule of the papers, element by element.
struct NaiveRMSprop {
  using Options = RMSpropOptions;
  using Parameter = RMSpropParameter;
  Options o;
  std::vector<double> w, s, a, b;
  NaiveRMSprop(const Options& options, const Reference& start)
      : o(options), w(start.values), s(w.size()), a(w.size()), b(w.size()) {}
  void step(int, const std::vector<double>& gradient) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + o.weight_decay * w[i];
      s[i] = o.alpha * s[i] + (1 - o.alpha) * g * g;
      a[i] = o.alpha * a[i] + (1 - o.alpha) * g;
      const double spread = o.centered ? s[i] - a[i] * a[i] : s[i];
      b[i] = o.momentum * b[i] + g / (std::sqrt(spread) + o.eps);
      w[i] -= o.learning_rate * b[i];
    }
  }
  static void run(const std::vector<Parameter>& parameters, int, const Options& options,
                  const GradientClip& clip, const Tensor& rate) {
    rmsprop(parameters, options, clip, rate);
  }
};

const RMSpropOptions plain = {.learning_rate = 0.01, .alpha = 0.9, .eps = 1e-2};
const RMSpropOptions everything = {.learning_rate = 0.01,
                                   .alpha = 0.9,
                                   .eps = 1e-2,
                                   .weight_decay = 0.1,
                                   .momentum = 0.5,
                                   .centered = true};

}  // namespace

TEST_CASE("rmsprop follows the rule, with momentum, centred, or neither") {
  RMSpropOptions momentum = plain, centered = plain;
  momentum.momentum = 0.5;
  centered.centered = true;
  check_steps<NaiveRMSprop>(momentum, f64, false, 1e-13);
  check_steps<NaiveRMSprop>(centered, f64, false, 1e-13);
  for (const RMSpropOptions& o : {plain, everything}) {
    check_steps<NaiveRMSprop>(o, f64, false, 1e-13);
    check_steps<NaiveRMSprop>(o, f32, false, 1e-5);
    // Masters lose nothing; what is left is one rounding of the value.
    check_steps<NaiveRMSprop>(o, bf16, true, 1e-5 + epsilon(bf16));
    check_steps<NaiveRMSprop>(o, f16, false, 10 * epsilon(f16));
  }
}

TEST_CASE("rmsprop clips and skips; a gradient that does not change has no spread") {
  check_clip<NaiveRMSprop>(everything);
  check_skip<NaiveRMSprop>(everything, f32);
  // All the same: s - a^2 is zero but for rounding, which must not make a NaN.
  RMSpropOptions o = everything;
  o.alpha = 0;
  o.weight_decay = 0;
  auto p = fresh_parameter<RMSpropParameter>(random_reference({999}, 1), f32, o);
  p.gradient = random_reference({999}, 2).tensor(f32, test_device());
  for (int t = 0; t < 3; ++t) rmsprop(std::vector{p}, o);
  for (const double v : Reference::of(p.value).values) CHECK(std::isfinite(v));
}

TEST_CASE("rmsprop refuses what does not fit") {
  auto p = fresh_parameter<RMSpropParameter>(Reference({2, 3}), f32, plain);
  p.gradient = zeros({2, 3}, f32, test_device());
  CHECK_THROWS_WITH_AS(rmsprop(std::vector{p}, everything),
                       "rmsprop: a parameter [2, 3] has no momentum", Error);
  CHECK_THROWS_WITH_AS(rmsprop({}, {.alpha = 1}), "rmsprop: an alpha of 1 is not within [0, 1)",
                       Error);
  CHECK_THROWS_WITH_AS(rmsprop({}, {.momentum = -1}),
                       "rmsprop: a rate of 0.01, an eps of 1e-08, a decay of 0, a momentum of -1: "
                       "none may be negative",
                       Error);
}
