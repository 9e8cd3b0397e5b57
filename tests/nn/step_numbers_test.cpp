// A step of an optimiser may take its numbers from the device, as a recorded one does.
#include <bs/kernels/adam.h>
#include <bs/kernels/adamw.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/ema.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/lamb.h>
#include <bs/kernels/lion.h>
#include <bs/kernels/muon.h>
#include <bs/kernels/random.h>
#include <bs/kernels/rmsprop.h>
#include <bs/kernels/sgd.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <functional>
#include <span>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

template <class Numbers>
Tensor on_device(const Numbers& numbers) {
  return Tensor::from(std::span<const double>(numbers), {static_cast<int64_t>(numbers.size())})
      .to(test_device());
}

/// A parameter with everything that an optimiser keeps for it.
struct Parameter {
  Tensor value, gradient, first, second, master;

  explicit Parameter(DType dtype) {
    const Device device = test_device();
    Generator generator(3);
    value = cast(randn({1003}, f32, device, generator), dtype);
    gradient = cast(randn({1003}, f32, device, generator), dtype);
    const DType wide = dtype == f64 ? f64 : f32;
    first = randn({1003}, wide, device, generator);
    second = rand({1003}, wide, device, generator);
    if (size_of(dtype) == 2) master = cast(value, f32);
  }
  MomentParameter moments() const { return {value, gradient, first, second, master}; }
};

/// Calls update(parameter, step, live) for each dtype and some steps: the numbers of a live one are
/// on the device, and give the bits that those of the host give.
void check_alike(const std::function<void(const Parameter& p, int64_t step, bool live)>& update) {
  for (const DType dtype : {f32, bf16, f16, f64})
    for (const int64_t step : {1, 7, 100000}) {
      CAPTURE(to_string(dtype));
      CAPTURE(step);
      const Parameter host(dtype), live(dtype);
      update(host, step, false);
      update(live, step, true);
      CHECK(same_bits(host.value, live.value));
      CHECK(same_bits(host.first, live.first));
      CHECK(same_bits(host.second, live.second));
      if (host.master.defined()) CHECK(same_bits(host.master, live.master));
    }
}

}  // namespace

TEST_CASE("numbers of a step come from the device as from the host: AdamW, Lamb and Adam") {
  check_alike([](const Parameter& p, int64_t step, bool live) {
    const AdamWOptions given{.learning_rate = 0.0123, .weight_decay = 0.07};
    if (live) {
      adamw({{p.moments()}}, 999, {.learning_rate = 5, .weight_decay = 0.07}, {},
            on_device(adamw_numbers(step, given)));
    } else {
      adamw({{p.moments()}}, step, given);
    }
  });
  check_alike([](const Parameter& p, int64_t step, bool live) {
    const LambOptions given{.learning_rate = 0.0123, .weight_decay = 0.07};
    if (live) {
      lamb({{p.moments()}}, 999, {.learning_rate = 5, .weight_decay = 0.07}, {},
           on_device(lamb_numbers(step, given)));
    } else {
      lamb({{p.moments()}}, step, given);
    }
  });
  check_alike([](const Parameter& p, int64_t step, bool live) {
    const AdamParameter a{p.value, p.gradient, p.first, p.second, {}, p.master};
    const AdamOptions mine{.learning_rate = live ? 5 : 0.0123, .weight_decay = 0.07};
    const AdamOptions given{.learning_rate = 0.0123, .weight_decay = 0.07};
    const Tensor numbers = on_device(adam_numbers(step, given));
    bs::adam({{a}}, live ? 999 : step, mine, {}, live ? numbers : Tensor());
  });
}

TEST_CASE("numbers of a step come from the device as from the host: Lion and Muon") {
  check_alike([](const Parameter& p, int64_t step, bool live) {
    const LionParameter l{p.value, p.gradient, p.first, p.master};
    const LionOptions mine{.learning_rate = live ? 5 : 0.0123, .weight_decay = 0.07};
    const LionOptions given{.learning_rate = 0.0123, .weight_decay = 0.07};
    const Tensor numbers = on_device(lion_numbers(step, given));
    lion({{l}}, mine, {}, live ? numbers : Tensor());
  });
  check_alike([](const Parameter& p, int64_t step, bool live) {
    const auto matrix = [](const Tensor& x) { return x.defined() ? x.view({17, 59}) : x; };
    const MuonParameter m{matrix(p.value), matrix(p.gradient), matrix(p.first), matrix(p.master)};
    const Tensor numbers = on_device(muon_numbers(step, {.learning_rate = 0.0123}));
    muon({{m}}, {.learning_rate = live ? 5 : 0.0123}, {}, live ? numbers : Tensor());
  });
}

TEST_CASE("numbers of a step come from the device as from the host: a rate, or a share") {
  check_alike([](const Parameter& p, int64_t, bool live) {
    const RMSpropParameter r{p.value, p.gradient, p.second, p.first, {}, p.master};
    const Tensor rate = live ? on_device(std::vector{0.0123}) : Tensor();
    rmsprop({{r}}, {.learning_rate = live ? 5 : 0.0123, .momentum = 0.9}, {}, rate);
  });
  check_alike([](const Parameter& p, int64_t, bool live) {
    const SgdParameter s{p.value, p.gradient, p.first, p.master};
    const Tensor rate = live ? on_device(std::vector{0.0123}) : Tensor();
    sgd({{s}}, {.learning_rate = live ? 5 : 0.0123, .momentum = 0.9}, {}, rate);
  });
  check_alike([](const Parameter& p, int64_t, bool live) {
    const Tensor mix = live ? on_device(std::vector{1 - 0.97}) : Tensor();
    ema({{{p.value, p.first}}}, live ? 0.1 : 0.97, mix);
  });
}

TEST_CASE("numbers of a step are refused where they do not fit") {
  CHECK_THROWS_WITH_AS(
      adamw({{Parameter(f32).moments()}}, 1, {}, {}, zeros({2}, f64, test_device())),
      doctest::Contains("adamw: numbers [2] of f64, expected [3] of f64 on"), Error);
}
