#include <bs/examples/support/history.h>
#include <bs/tests/fuzz/harness.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

using namespace bs;
using example::History;

BS_HARNESS(metrics) {
  const std::string folder = fuzz::path_of("run");
  std::filesystem::create_directories(folder);
  fuzz::file_of("run/metrics.jsonl", bytes);
  constexpr int64_t last = 1000;
  std::vector<example::Metrics> steps, evaluations;
  const bool taken = fuzz::takes([&] {
    const History history(folder, last);
    steps = history.steps();
    evaluations = history.evaluations();
  });
  if (!taken) return;
  History history(folder, last);
  const auto alike = [](const auto& a, const auto& b) {
    return a.first == b.first &&
           (a.second == b.second || (std::isnan(a.second) && std::isnan(b.second)));
  };
  const auto same = [&](const example::Metrics& a, const example::Metrics& b) {
    return a.step == b.step && std::ranges::equal(a.values, b.values, alike);
  };
  fuzz::require(std::ranges::equal(steps, history.steps(), same), "steps are what they were");
  fuzz::require(std::ranges::equal(evaluations, history.evaluations(), same),
                "evaluations are what they were");
  for (const auto& m : steps) fuzz::require(m.step <= last, "later steps are dropped");
}
