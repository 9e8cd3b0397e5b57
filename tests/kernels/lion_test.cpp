#include <bs/kernels/lion.h>
#include <bs/tests/kernels/optimizer_reference.h>

using namespace bs;
using namespace bs::test;

namespace {

/// The rule of the paper, element by element.
struct NaiveLion {
  using Options = LionOptions;
  using Parameter = LionParameter;
  Options o;
  std::vector<double> w, m;
  NaiveLion(const Options& options, const Reference& start)
      : o(options), w(start.values), m(w.size()) {}
  void step(int, const std::vector<double>& gradient) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i], c = o.beta1 * m[i] + (1 - o.beta1) * g;
      w[i] -= o.learning_rate * ((c > 0) - (c < 0) + o.weight_decay * w[i]);
      m[i] = o.beta2 * m[i] + (1 - o.beta2) * g;
    }
  }
  static void run(const std::vector<Parameter>& parameters, int, const Options& options,
                  const GradientClip& clip, const Tensor& numbers) {
    lion(parameters, options, clip, numbers);
  }
};

const LionOptions options = {
    .learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1};

}  // namespace

TEST_CASE("lion follows the rule") {
  check_steps<NaiveLion>(options, f64, false, 1e-13);
  // Few enough elements that no sum of this seed is within rounding of zero, where signs part.
  const std::vector<Shape> shapes = {{3, 5}, {1}, {0}, {999}, {}};
  check_steps<NaiveLion>(options, f32, false, 1e-6, shapes);
  // Masters lose nothing; what is left is one rounding of the value.
  check_steps<NaiveLion>(options, bf16, true, 1e-6 + epsilon(bf16), shapes);
  check_steps<NaiveLion>(options, f16, false, 10 * epsilon(f16), shapes);
}

TEST_CASE("lion clips and skips; nothing moves by a zero, and NaN stays NaN") {
  check_clip<NaiveLion>(options);
  check_skip<NaiveLion>(options, f32);
  auto p = fresh_parameter<LionParameter>(random_reference({3}, 1), f32, options);
  const Reference before = Reference::of(p.value);
  p.gradient = Tensor::from<float>({0, NAN, -1e-30F}, {3}).to(test_device());
  lion(std::vector{p}, {.learning_rate = 0.5});
  const Reference after = Reference::of(p.value);
  CHECK(after[0] == before[0]);
  CHECK(std::isnan(after[1]));
  CHECK(after[2] == static_cast<float>(before[2] + 0.5));
}

TEST_CASE("lion refuses what does not fit") {
  LionParameter p;
  p.value = p.gradient = zeros({2}, f32, test_device());
  CHECK_THROWS_WITH_AS(lion(std::vector{p}, {}), "lion: a parameter [2] has no momentum", Error);
  CHECK_THROWS_WITH_AS(lion({}, {.beta1 = 1}), "lion: betas 1 and 0.99 are not within [0, 1)",
                       Error);
  CHECK_THROWS_WITH_AS(lion({}, {.weight_decay = -1}),
                       "lion: a rate of 0.0001, a decay of -1: none may be negative", Error);
}
