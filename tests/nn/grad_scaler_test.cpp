#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/fill.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/optim/grad_scaler.h>
#include <bs/nn/optim/rate_factor.h>
#include <bs/nn/optim/sgd.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// One f32 parameter of two elements, and descent with rate 1.
struct Descent {
  Variable w{Tensor::from<float>({1, 2}).to(test_device()), true};
  optim::Sgd optimizer{{optim::SgdGroup{{{"w", w}}, {.learning_rate = 1}}}};
  std::vector<Variable> parameters = {w};
  std::vector<double> values() const { return Reference::of(w.data()).values; }
};

}  // namespace

TEST_CASE("a scaled loss gives the step of the plain one") {
  Descent d;
  optim::GradScaler scaler({.scale = 1024});
  scaler.scale(sum(d.w * 0.25)).backward();
  CHECK(Reference::of(d.w.grad())[0] == 256);
  CHECK(scaler.step(d.optimizer, d.parameters));
  CHECK(d.values() == std::vector<double>{0.75, 1.75});
  // The norm that is bounded is that of the plain gradients: 5 of (3, 4).
  d.optimizer.zero_grad();
  scaler.scale(sum(d.w * Tensor::from<float>({3, 4}).to(test_device()))).backward();
  CHECK(scaler.step(d.optimizer, d.parameters, 1.0));
  CHECK(d.values()[0] == doctest::Approx(0.75 - 0.6).epsilon(1e-5));
}

TEST_CASE("the scale falls where a gradient is not finite, and grows again") {
  Descent d;
  optim::GradScaler scaler({.scale = 8, .interval = 2});
  d.w.set_grad(full({2}, std::nan(""), f32, test_device()));
  CHECK(!scaler.step(d.optimizer, d.parameters));
  CHECK(scaler.scale() == 4);
  CHECK(d.optimizer.steps() == 0);
  CHECK(d.values() == std::vector<double>{1, 2});
  d.w.set_grad(zeros({2}, f32, test_device()));
  CHECK(scaler.step(d.optimizer, d.parameters));
  CHECK(scaler.good_steps() == 1);
  CHECK(scaler.step(d.optimizer, d.parameters));
  CHECK(scaler.scale() == 8);
  scaler.restore(2, 1);
  CHECK((scaler.scale() == 2 && scaler.good_steps() == 1));
  CHECK_THROWS_WITH_AS(optim::GradScaler({.scale = 0}), "grad_scaler: a scale of 0", Error);
}

TEST_CASE("a scale that no gradient would survive is an error, not a step of zeros") {
  Descent d;
  optim::GradScaler scaler({.scale = 4, .backoff = 1.0 / 4096});
  d.w.set_grad(full({2}, std::nan(""), f32, test_device()));
  for (int i = 0; i < 10; ++i) CHECK(!scaler.step(d.optimizer, d.parameters));
  const double least = std::ldexp(1.0, -118);
  CHECK(scaler.scale() == least);
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_WITH_AS(scaler.step(d.optimizer, d.parameters),
                         doctest::Contains("at a scale of 3.00"), Error);
    CHECK(scaler.scale() == least);
  }
  CHECK(d.values() == std::vector<double>{1, 2});
  const double too_little = std::ldexp(1.0, -127);
  CHECK_THROWS_WITH_AS(optim::GradScaler({.scale = too_little}),
                       doctest::Contains("grad_scaler: a scale of 5.87"), Error);
  CHECK_THROWS_WITH_AS(scaler.restore(too_little, 0),
                       doctest::Contains("grad_scaler: a scale of 5.87"), Error);
}

TEST_CASE("a gradient too small for f16 survives scaling") {
  const Variable w(full({1}, 1, f16, test_device()), true);
  optim::Sgd optimizer({optim::SgdGroup{{{"w", w}}, {.learning_rate = 1024}}});
  optim::GradScaler scaler;
  const std::vector<Variable> parameters = {w};
  // 1e-8 is zero in f16, 65536 times as much is not.
  const Variable loss = scaler.scale(cast(sum(w), f32) * 1e-8);
  loss.backward();
  CHECK(scaler.step(optimizer, parameters));
  for (const auto& [name, tensor] : optimizer.state())
    if (name == "w.master") CHECK(1 - tensor.item() == doctest::Approx(1.024e-5).epsilon(0.02));
}

TEST_CASE("clipping in a pass of its own divides by the scale") {
  const Tensor g = full({4}, 8, f32, test_device());
  clip_gradients(std::vector<Tensor>{g}, {.norm = {}, .scale = 4});
  CHECK(Reference::of(g)[3] == 2);
}

TEST_CASE("groups keep their rates beside each other") {
  const Variable a(zeros({1}, f32, test_device()), true), b(zeros({1}, f32, test_device()), true);
  optim::Sgd optimizer({optim::SgdGroup{{{"a", a}}, {.learning_rate = 1}},
                        optim::SgdGroup{{{"b", b}}, {.learning_rate = 0.1}}});
  const auto moved = [&] {
    for (const Variable& v : {a, b}) {
      v.set_data(zeros({1}, f32, test_device()));
      v.set_grad(full({1}, -1, f32, test_device()));
    }
    optimizer.step();
    return std::pair(a.data().item(), b.data().item());
  };
  optimizer.scale_learning_rates(0.5);
  CHECK(moved().first == 0.5);
  CHECK(moved().second == doctest::Approx(0.05));
  optimizer.scale_learning_rates(2);
  CHECK(moved().first == 2);
  optimizer.set_learning_rate(3);
  CHECK(moved().second == 3);
  CHECK_THROWS_WITH_AS(optimizer.set_learning_rate(-1), "optimizer: a learning rate of -1", Error);
  CHECK_THROWS_AS(optimizer.set_learning_rate(std::nan("")), Error);
  CHECK_THROWS_WITH_AS(optim::AdamW(std::vector<optim::AdamWGroup>{}),
                       "optimizer: there are no parameters to change", Error);
}

TEST_CASE("rates that start anew") {
  // What torch's CosineAnnealingWarmRestarts makes of a rate of 1, with T_0, T_mult and eta_min.
  const optim::WarmRestarts even{.first = 4, .lowest = 0.25};
  const optim::WarmRestarts longer{.first = 2, .growth = 3};
  const double evenly[] = {1, 0.8901650429449553, 0.625, 0.35983495705504473, 1};
  const double longest[] = {1, 0.5, 1, 0.9330127018922194, 0.75, 0.5, 0.25, 0.06698729810778059, 1};
  for (int64_t step = 0; step < 5; ++step)
    CHECK(even.at(step) == doctest::Approx(evenly[step]).epsilon(1e-15));
  for (int64_t step = 0; step < 9; ++step)
    CHECK(longer.at(step) == doctest::Approx(longest[step]).epsilon(1e-15));
  CHECK(longer.at(25) < 0.01);
  CHECK(longer.at(26) == 1);
  CHECK(even.at(int64_t{1} << 40) == 1);
  // The second period has 10^13 steps, and the third more than there are numbers.
  const optim::WarmRestarts huge{.first = 1000, .growth = int64_t{10'000'000'000}};
  CHECK(huge.at(1000 + int64_t{5'000'000'000'000}) == doctest::Approx(0.5));
  CHECK(huge.at(100'000'000'000'000) == doctest::Approx(1));
  CHECK(huge.at(std::numeric_limits<int64_t>::max()) == doctest::Approx(1));
  // 3^0 + ... + 3^39 steps passed, and 3^40 are no number of 64 bits.
  const int64_t passed = 6'078'832'729'528'464'400;
  const optim::WarmRestarts thrice{.first = 1, .growth = 3};
  CHECK(thrice.at(passed) == 1);
  const double share =
      static_cast<double>(std::numeric_limits<int64_t>::max() - passed) / std::pow(3.0, 40);
  CHECK(thrice.at(std::numeric_limits<int64_t>::max()) ==
        doctest::Approx(0.5 * (1 + std::cos(std::acos(-1.0) * share))));
  CHECK_THROWS_WITH_AS(optim::WarmRestarts{.first = 0}.at(1),
                       "warm_restarts: step 1, restarts after 0 steps, 1 times as long each time",
                       Error);
}

TEST_CASE("a plateau goes on from saved values") {
  optim::Plateau whole({.factor = 0.5, .patience = 1}), later({.factor = 0.5, .patience = 1});
  for (const double value : {3.0, 2.0, 2.5}) whole.update(value);
  later.restore(whole.state());
  for (const double value : {2.5, 1.0, 1.5, 1.5, 1.5})
    CHECK(later.update(value) == whole.update(value));
  CHECK(later.factor() == 0.25);
}

TEST_CASE("rates that fall in steps, on a plateau, and in one cycle") {
  const optim::StepDecay steps{.every = 10, .factor = 0.5};
  CHECK((steps.at(0) == 1 && steps.at(9) == 1 && steps.at(10) == 0.5 && steps.at(25) == 0.25));
  const optim::OneCycle cycle{.steps = 100, .rise = 0.2, .first = 0.1, .last = 0.01};
  CHECK(cycle.at(0) == doctest::Approx(0.1));
  CHECK(cycle.at(10) == doctest::Approx(0.55));
  CHECK(cycle.at(20) == doctest::Approx(1));
  CHECK(cycle.at(60) == doctest::Approx(0.505));
  CHECK(cycle.at(500) == doctest::Approx(0.01));
  optim::Plateau plateau({.factor = 0.5, .patience = 1, .lowest = 0.25});
  CHECK(plateau.update(4) == 1);
  CHECK(plateau.update(3) == 1);
  CHECK(plateau.update(3) == 1);
  CHECK(plateau.update(std::nan("")) == 0.5);
  CHECK(plateau.update(2) == 0.5);
  for (int i = 0; i < 8; ++i) plateau.update(2);
  CHECK(plateau.factor() == 0.25);
  CHECK_THROWS_WITH_AS(steps.at(-1), "step_decay: step -1, a factor of 0.5 every 10", Error);
}
