// The code of docs/profiling.md; see snippets_test.cpp.
#include <bs/lib/debug_memory.h>
#include <bs/nn.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <iostream>
#include <sstream>

using namespace bs;

TEST_CASE("profiling: a few steps, a range, the table and the trace") {
  const test::Scratch folder;
  const std::string path = folder / "trace.json";
  nn::Linear model({.in = 16, .out = 16});
  optim::Sgd optimizer(model, {.learning_rate = .1});
  const Tensor x = randn({8, 16});
  const auto train_step = [&] {
    optimizer.zero_grad();
    Variable loss;
    {
      const TraceRange range("forward");
      loss = mean(model.forward(x) * x);
    }
    loss.backward();
    optimizer.step();
  };

  train_step();  // the first steps make threads and tables
  Profiler profiler;
  for (int i = 0; i < 3; ++i) train_step();
  profiler.stop();

  std::ostream& out = std::cout;
  std::ostringstream hidden;
  const auto terminal = out.rdbuf(hidden.rdbuf());
  std::cout << profiler.table({.rows = 10, .rates = device_rates});
  profiler.write_trace(path);
  out.rdbuf(terminal);
  CHECK(hidden.str().find("linear") != std::string::npos);
  CHECK(hidden.str().find("forward") != std::string::npos);
  CHECK(hidden.str().find("backward") != std::string::npos);
  CHECK(folder.files() == 1);

  double flops = 0;
  for (const ProfilerEvent& event : profiler.events()) flops += event.work.flops;
  CHECK(flops == 3 * 2 * (2 * 8 * 16 * 16));
}

TEST_CASE("profiling: memory") {
  const Device device = Device::cpu();
  const nn::Linear model({.in = 16, .out = 16});
  const PeakMemory peak(device);
  model.forward(randn({64, 16}));
  const int64_t needed = peak.bytes();  // at the most, beyond what was in use before
  CHECK(needed >= 2 * 64 * 16 * 4);
  std::ostringstream hidden;
  const auto terminal = std::cout.rdbuf(hidden.rdbuf());
  set_memory_debug(device, true);
  const Variable kept = model.forward(randn({64, 16}));
  std::cout << memory_report(device);
  set_memory_debug(device, false);
  std::cout.rdbuf(terminal);
  CHECK(hidden.str().find("4.00 KiB in 1 of linear") != std::string::npos);
  memory_resource(device).trim();
  CHECK(memory_statistics(device).reserved >= memory_statistics(device).in_use);
}
