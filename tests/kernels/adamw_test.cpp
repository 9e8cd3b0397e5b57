#include <bs/kernels/adamw.h>
#include <bs/tests/kernels/optimizer_reference.h>

using namespace bs;
using namespace bs::test;

namespace {

/// The rule of the paper, element by element.
struct NaiveAdamW : NaiveMoments<AdamWOptions> {
  using NaiveMoments::NaiveMoments;
  void step(int t, const std::vector<double>& gradient) {
    for (size_t i = 0; i < w.size(); ++i)
      w[i] -= o.learning_rate * (direction(i, t, gradient[i]) + o.weight_decay * w[i]);
  }
  static constexpr auto run = adamw;
};

const AdamWOptions options = {
    .learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};

void check_steps(DType dtype, bool master, double tolerance) {
  test::check_steps<NaiveAdamW>(options, dtype, master, tolerance);
}

}  // namespace

TEST_CASE("adamw follows the rule") {
  check_steps(f64, false, 1e-13);
  check_steps(f32, false, 1e-5);  // ten steps, each rounded to 2^-24 of values around 1
  // Masters lose nothing; what is left is one rounding of the value.
  check_steps(f16, true, 1e-5 + epsilon(f16));
  check_steps(bf16, true, 1e-5 + epsilon(bf16));
  // Without a master every one of the ten steps rounds.
  check_steps(f16, false, 10 * epsilon(f16));
  check_steps(bf16, false, 10 * epsilon(bf16));
}

TEST_CASE("adamw steps all dtypes in one call, and more tensors than a launch takes") {
  std::vector<AdamWParameter> parameters;
  std::vector<NaiveAdamW> naive;
  for (size_t i = 0; i < 1500; ++i) {
    const DType dtype = i % 3 == 0 ? f64 : i % 3 == 1 ? f32 : bf16;
    const Reference start = Reference::of(random_reference({3}, i).tensor(dtype, Device::cpu()));
    parameters.push_back(moment_parameter(start, dtype, dtype == bf16));
    parameters.back().gradient = random_reference({3}, 7 * i).tensor(dtype, test_device());
    naive.emplace_back(options, start);
    naive.back().step(1, Reference::of(parameters.back().gradient).values);
  }
  adamw(parameters, 1, options);
  for (size_t i = 0; i < parameters.size(); ++i)
    CHECK(worst(parameters[i].value, naive[i].w) <= epsilon(parameters[i].value.dtype()));
}

TEST_CASE("adamw takes views as gradients and parameters off the alignment of loads") {
  const Reference start = random_reference({4, 9}, 1);
  Tensor memory = Tensor::empty({37}, f32, test_device());
  AdamWParameter p = moment_parameter(start, f32);
  p.value = memory.slice(0, 1, 37).view({4, 9});
  copy(start.tensor(f32, test_device()), p.value);
  const Reference g = random_reference({9, 4}, 2);
  p.gradient = g.tensor(f32, test_device()).transpose(0, 1);
  NaiveAdamW naive(options, Reference::of(p.value));
  naive.step(1, Reference::of(p.gradient).values);
  adamw(std::vector{p}, 1, options);
  CHECK(worst(p.value, naive.w) <= 1e-6);
}

TEST_CASE("adamw leaves parameters without gradient alone and clips on request") {
  const Reference start = random_reference({100}, 1);
  const AdamWParameter still = moment_parameter(start, f64);
  AdamWParameter moved = moment_parameter(start, f64);
  moved.gradient = random_reference({100}, 2).tensor(f64, test_device());
  adamw(std::vector{still, moved}, 1, options);
  CHECK(Reference::of(still.value).values == start.values);
  CHECK(Reference::of(moved.value).values != start.values);
  adamw({}, 1, options);
  check_clip<NaiveAdamW>(options);
}

TEST_CASE("adamw skips a step whose norm is not finite, when asked to") {
  check_skip<NaiveAdamW>(options, f32);
  AdamWParameter p = moment_parameter(random_reference({100}, 1), f32);
  p.gradient = random_reference({100}, 2).tensor(f32, test_device());
  adamw(std::vector{p}, 1, options,
        {Tensor::from<double>({std::nan("")}, {}).to(test_device()), 1});
  CHECK(std::isnan(Reference::of(p.value)[0]));
}

TEST_CASE("adamw refuses what does not fit") {
  const auto good = [] {
    AdamWParameter p = moment_parameter(Reference({2, 3}), f32);
    p.gradient = zeros({2, 3}, f32, test_device());
    return p;
  };
  const auto run = [](const AdamWParameter& p) { adamw(std::vector{p}, 1, options); };
  AdamWParameter p = good();
  CHECK_THROWS_WITH_AS(adamw(std::vector{p}, 0, options), "adamw: step 0 comes before the first",
                       Error);
  CHECK_THROWS_WITH_AS(adamw(std::vector{p}, 1, {.beta2 = 1}),
                       "adamw: betas 0.9 and 1 are not within [0, 1)", Error);
  p.gradient = zeros({3, 2}, f32, test_device());
  CHECK_THROWS_WITH_AS(run(p), "adamw: gradient [3, 2] of f32 for a parameter [2, 3] of f32",
                       Error);
  p = good();
  p.second_moment = {};
  CHECK_THROWS_WITH_AS(run(p), "adamw: a parameter [2, 3] has no second_moment", Error);
  p = good();
  p.first_moment = zeros({2, 3}, f64, test_device());
  CHECK_THROWS_WITH_AS(run(p),
                       "adamw: first_moment [2, 3] of f64 with strides [3, 1] for a parameter "
                       "[2, 3] of f32",
                       Error);
  p = good();
  p.master = zeros({2, 3}, f32, test_device());
  CHECK_THROWS_WITH_AS(run(p), "adamw: a master copy for a parameter of f32", Error);
  p = good();
  p.value = zeros({3, 2}, f32, test_device()).transpose(0, 1);
  CHECK_THROWS_WITH_AS(run(p), "adamw: parameter [2, 3] with strides [1, 2] has gaps", Error);
  CHECK_THROWS_WITH_AS(adamw(std::vector{good()}, 1, options, {zeros({}, f32, test_device()), 1}),
                       ("adamw: norm [] of f32 on " + to_string(test_device()) +
                        ", expected a scalar of f64 on " + to_string(test_device()))
                           .c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(adamw(std::vector{good()}, 1, options, {zeros({}, f64, test_device()), 0}),
                       "adamw: max_norm 0 is not positive", Error);
}
