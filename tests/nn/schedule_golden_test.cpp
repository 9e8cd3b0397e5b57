// Schedules against torch.optim.lr_scheduler: rates of two groups, recorded by
// golden/record_schedules.py.
#include <bs/lib/check.h>
#include <bs/nn/optim/lr_schedule.h>
#include <bs/nn/optim/rate_factor.h>
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace bs;

namespace {

constexpr double rates[] = {0.1, 0.02};
constexpr int64_t steps = 24;

std::map<std::string, std::vector<double>> read(const char* path) {
  std::ifstream file(path);
  std::map<std::string, std::vector<double>> all;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (double rate = 0; words >> rate;) all[name].push_back(rate);
  }
  return all;
}

double falling(optim::Decay decay, double lowest, int64_t over, int64_t step) {
  return optim::LearningRateSchedule{.highest = 1, .lowest = lowest, .steps = over, .decay = decay}
      .at(step);
}

}  // namespace

TEST_CASE("schedules give each group the rates of torch.optim.lr_scheduler") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> losses{3,   2,       2,      2,   1.9999, 1.5, nan, 1.6,
                                   1.5, 1.4,     1.4,    1.4, 1.4,    1.5, 0.1, 0.2,
                                   0.3, 0.09999, 0.0999, 0.1, 0.1,    0.1, 0.1, 0.1};
  optim::Plateau plateau({.factor = 0.5, .patience = 1, .lowest = 0.1});
  const std::map<std::string, std::function<double(int64_t)>> factors{
      {"step", [](int64_t s) { return optim::StepDecay{.every = 5, .factor = 0.5}.at(s); }},
      {"multi_step",
       [](int64_t s) {
         return optim::MultiStepDecay{.steps = {2, 7, 7, 15}, .factor = 0.3}.at(s);
       }},
      {"exponential", [](int64_t s) { return optim::StepDecay{.factor = 0.9}.at(s); }},
      // PyTorch's first part ends at 9 / 25 of 25 steps, less one: step 8 of 24.
      {"one_cycle",
       [](int64_t s) { return optim::OneCycle{.steps = steps, .rise = 8.0 / 24}.at(s); }},
      {"warm_restarts",
       [](int64_t s) { return optim::WarmRestarts{.first = 3, .growth = 2}.at(s); }},
      {"cosine", [](int64_t s) { return falling(optim::Decay::cosine, 0, steps, s); }},
      {"linear", [](int64_t s) { return falling(optim::Decay::linear, 0.1, 16, s); }},
      {"plateau", [&](int64_t s) { return plateau.update(losses[static_cast<size_t>(s)]); }}};
  const auto recorded = read(BS_GOLDEN "/schedules.txt");
  CHECK(recorded.size() == factors.size());
  for (const auto& [key, factor] : factors) {
    const std::string name = key;
    CAPTURE(name);
    const std::vector<double>& expected = recorded.at(name);
    REQUIRE(expected.size() == 2 * steps);
    for (int64_t s = 0; s < steps; ++s) {
      CAPTURE(s);
      const double f = factor(s);
      for (size_t group = 0; group < 2; ++group)  // 24 products, each off by 2^-54 of 0.1
        CHECK(std::abs(rates[group] * f - expected[2 * static_cast<size_t>(s) + group]) < 1e-15);
    }
  }
}

TEST_CASE("MultiStepDecay refuses steps that do not ascend") {
  CHECK(optim::MultiStepDecay{}.at(7) == 1);
  CHECK_THROWS_WITH_AS((optim::MultiStepDecay{.steps = {5, 2}}.at(0)),
                       "multi_step_decay: 2 steps that do not ascend from 0 or later", Error);
  CHECK_THROWS_WITH_AS((optim::MultiStepDecay{.steps = {5}}.at(-1)),
                       "multi_step_decay: step -1, a factor of 0.1", Error);
}
