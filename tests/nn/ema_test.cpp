#include <bs/kernels/fill.h>
#include <bs/lib/recording.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/ema.h>
#include <bs/nn/optim/sgd.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>

using namespace bs;
using namespace bs::test;

TEST_CASE("optim::Ema: averages, and a scope in which the model has them") {
  for (DType dtype : {f64, bf16}) {
    const nn::Linear model({.in = 3, .out = 2, .dtype = dtype, .device = test_device()});
    const optim::Ema ema(model, 0.5);
    CHECK_THROWS_WITH_AS(optim::Ema(model, 1), "ema: a decay of 1", Error);
    const Reference before = Reference::of(model.bias.data());
    fill(model.bias.data(), 2);
    ema.update(1);  // takes 9 of 11 parts of the new value
    ema.update(100);
    const double first = before[0] + (2 - before[0]) * 9.0 / 11;
    const double second = first + (2 - first) * 0.5;
    {
      const optim::AverageScope scope(ema);
      CHECK(Reference::of(model.bias.data())[0] ==
            doctest::Approx(second).epsilon(dtype == f64 ? 1e-14 : 0x1p-8));
    }
    CHECK(Reference::of(model.bias.data())[0] == 2);
    bool found = false;
    for (const auto& [name, tensor] : ema.state()) found = found || name == "weight";
    CHECK(found);
  }
}

TEST_CASE("optim::Ema: a recorded update asks its optimiser for the number of each step") {
  const nn::Linear model({.in = 3, .out = 2});
  optim::Sgd rule(model, {});
  const optim::Ema ema(model, 0.15);
  Recording recording(Device::cpu(), {});
  {
    const Recording::Scope scope(recording);
    ema.update(rule);
  }
  for (int step = 1; step <= 4; ++step) {
    rule.step();  // as other graphs, or no graph at all, take them
    const double decay = std::min(0.15, (1.0 + step) / (10.0 + step));
    CHECK(std::bit_cast<double>(recording.refresh().front()) == 1 - decay);
  }
}
