#include <bs/kernels/adam.h>
#include <bs/tests/kernels/optimizer_reference.h>

using namespace bs;
using namespace bs::test;

namespace {

/// The rule of the papers, element by element.
struct NaiveAdam : NaiveMoments<AdamOptions> {
  using Parameter = AdamParameter;
  std::vector<double> highest;
  NaiveAdam(const AdamOptions& options, const Reference& start)
      : NaiveMoments(options, start), highest(w.size()) {}
  void step(int t, const std::vector<double>& gradient) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double u = direction(i, t, gradient[i] + o.weight_decay * w[i]);
      highest[i] = std::max(highest[i], v[i]);
      const double correction = 1 - std::pow(o.beta2, t);
      const double stretch =
          (std::sqrt(v[i] / correction) + o.eps) / (std::sqrt(highest[i] / correction) + o.eps);
      w[i] -= o.learning_rate * u * (o.amsgrad ? stretch : 1);
    }
  }
  static constexpr auto run = adam;
};

const AdamOptions options = {
    .learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
const AdamOptions amsgrad_options = {
    .learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.5, .eps = 1e-6, .amsgrad = true};

}  // namespace

TEST_CASE("adam follows the rule, and amsgrad") {
  for (const AdamOptions& o : {options, amsgrad_options}) {
    check_steps<NaiveAdam>(o, f64, false, 1e-13);
    check_steps<NaiveAdam>(o, f32, false, 1e-5);  // ten steps, each rounded to 2^-24
    // Masters lose nothing; what is left is one rounding of the value.
    check_steps<NaiveAdam>(o, bf16, true, 1e-5 + epsilon(bf16));
    check_steps<NaiveAdam>(o, f16, false, 10 * epsilon(f16));
  }
}

TEST_CASE("adam clips and skips on request") {
  check_clip<NaiveAdam>(options);
  check_skip<NaiveAdam>(amsgrad_options, f32);
  AdamParameter p = fresh_parameter<AdamParameter>(random_reference({3}, 1), f32, amsgrad_options);
  p.gradient = Tensor::from<float>({1, NAN, 2}, {3}).to(test_device());
  adam(std::vector{p}, 1, amsgrad_options);
  const Reference w = Reference::of(p.value), x = Reference::of(p.max_second_moment);
  CHECK((std::isfinite(w[0]) && std::isnan(w[1]) && std::isfinite(w[2])));
  CHECK(std::isnan(x[1]));
}

TEST_CASE("adam refuses what does not fit") {
  AdamParameter p = fresh_parameter<AdamParameter>(Reference({2, 3}), f32, options);
  p.gradient = zeros({2, 3}, f32, test_device());
  CHECK_THROWS_WITH_AS(adam(std::vector{p}, 0, options), "adam: step 0 comes before the first",
                       Error);
  CHECK_THROWS_WITH_AS(adam(std::vector{p}, 1, {.beta2 = 1}),
                       "adam: betas 0.9 and 1 are not within [0, 1)", Error);
  CHECK_THROWS_WITH_AS(adam(std::vector{p}, 1, amsgrad_options),
                       "adam: a parameter [2, 3] has no max_second_moment", Error);
  CHECK_THROWS_WITH_AS(adam({}, 1, {.eps = -1}), doctest::Contains("adam: a rate of 0.001, an eps"),
                       Error);
}
