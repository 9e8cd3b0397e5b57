#include <bs/kernels/lamb.h>
#include <bs/tests/kernels/optimizer_reference.h>

using namespace bs;
using namespace bs::test;

namespace {

/// The rule, a tensor at a time.
struct NaiveLamb : NaiveMoments<LambOptions> {
  using NaiveMoments::NaiveMoments;
  void step(int t, const std::vector<double>& gradient) {
    std::vector<double> u(w.size());
    double w_squares = 0, u_squares = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      u[i] = direction(i, t, gradient[i]) + o.weight_decay * w[i];
      w_squares += w[i] * w[i];
      u_squares += u[i] * u[i];
    }
    const bool adapts = (o.weight_decay != 0 || o.always_adapt) && w_squares > 0 && u_squares > 0;
    const double ratio = adapts ? std::sqrt(w_squares) / std::sqrt(u_squares) : 1;
    for (size_t i = 0; i < w.size(); ++i) w[i] -= o.learning_rate * ratio * u[i];
  }
  static constexpr auto run = lamb;
};

const LambOptions options = {
    .learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};

void check_steps(const LambOptions& o, DType dtype, bool master, double tolerance) {
  test::check_steps<NaiveLamb>(o, dtype, master, tolerance);
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
  LambParameter p = moment_parameter(Reference({2, 2}), f64);
  p.gradient = random_reference({2, 2}, 1).tensor(f64, test_device());
  const LambParameter still = moment_parameter(random_reference({3}, 1), f64);
  NaiveLamb naive(options, Reference({2, 2}));
  naive.step(1, Reference::of(p.gradient).values);
  lamb(std::vector{still, p}, 1, options);
  CHECK(worst(p.value, naive.w) <= 1e-15);
  CHECK(Reference::of(still.value).values == random_reference({3}, 1).values);
  lamb({}, 1, options);
}

TEST_CASE("lamb clips, and skips a step whose norm is not finite") {
  check_clip<NaiveLamb>(options);
  check_skip<NaiveLamb>(options, f64);
}

TEST_CASE("lamb refuses what does not fit") {
  LambParameter p = moment_parameter(Reference({2, 3}), f32);
  p.gradient = zeros({2, 3}, f32, test_device());
  CHECK_THROWS_WITH_AS(lamb(std::vector{p}, 0, options), "lamb: step 0 comes before the first",
                       Error);
  CHECK_THROWS_WITH_AS(lamb(std::vector{p}, 1, {.beta1 = 1}),
                       "lamb: betas 1 and 0.999 are not within [0, 1)", Error);
  p.first_moment = {};
  CHECK_THROWS_WITH_AS(lamb(std::vector{p}, 1, options),
                       "lamb: a parameter [2, 3] has no first_moment", Error);
}
