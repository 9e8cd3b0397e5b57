#pragma once
/** @file Compiles kernels that are emitted at run time, as their users' machines would. */
#include <bs/lib/cuda/jit.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace bs::test {

/** @brief Whether kernels for a GPU are those for another one that is compiled for, but for what
 *  ptxas makes of them: few are taken. */
constexpr bool is_alike(int capability) {
  return capability == 86 || capability == 89 || capability == 120;
}

/** @brief Compiles `source_of(config)` for sm_80 to sm_120a, or what is given, and checks that
 * nothing spills, that no kernel has local memory, and that ptxas need not serialise a wgmma nor
 * refuse to hand over registers (its messages C75xx). Every `share`-th config of each is in the
 * sample, another one for each architecture, and a seventh of those beside sm_80 where is_alike()
 * says so. Of a sample of three and more a third is taken, unless `share` is 1: which one
 * BS_TEST_TURN says, so three turns in a row take all of it. All configs are taken where
 * BS_TEST_ALL_KERNELS is 1, and all for capabilities that it lists, "80,90", and no others. `share`
 * is prime, so that it cuts across the axes that `configs` was made of. An architecture beyond this
 * NVRTC is left out. No GPU and no cache is touched. */
template <class Config, class SourceOf>
void check_kernels(const std::vector<Config>& configs, const SourceOf& source_of, size_t share,
                   const std::vector<int>& capabilities = {80, 86, 89, 90, 100, 120}) {
  struct Task {
    const Config* config;
    int capability;
    std::string complaint;
  };
  const char* const whole = std::getenv("BS_TEST_ALL_KERNELS");
  const bool all = whole != nullptr;
  const std::string listed = all && std::string_view(whole) != "1" ? format(",{},", whole) : "";
  const char* const turn = std::getenv("BS_TEST_TURN");
  const size_t third = turn != nullptr ? std::strtoul(turn, nullptr, 10) % 3 : 0;
  const bool beside = std::ranges::count(capabilities, 80) > 0;
  std::vector<Task> tasks;
  for (const int capability : capabilities) {
    if (!listed.empty() && listed.find(format(",{},", capability)) == std::string::npos) continue;
    if (!cuda::jit::compiles_for(capability)) {
      MESSAGE("left out: this NVRTC knows no ", cuda::jit::architecture(capability));
      continue;
    }
    const size_t step = all ? 1 : beside && is_alike(capability) ? 7 * share : share;
    const size_t thirds = all || share == 1 || configs.size() < 3 * step ? 1 : 3;
    const size_t first = static_cast<size_t>(capability) + third * step;
    for (size_t i = 0; i < configs.size(); ++i)
      if ((i + first) % (thirds * step) == 0) tasks.push_back({&configs[i], capability, ""});
  }
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) {
      Task& task = tasks[i];
      try {
        const cuda::jit::Source source = source_of(*task.config);
        const cuda::jit::Binary binary = cuda::jit::compile(source, task.capability);
        const cuda::jit::Resources& r = binary.resources;
        if (r.local_bytes != 0 || r.spill_bytes != 0)
          task.complaint = format("{} for {}: {} registers, {} bytes local, {} bytes spilled",
                                  source.name, cuda::jit::architecture(task.capability),
                                  r.registers, r.local_bytes, r.spill_bytes);
        if (binary.log.find("(C75") != std::string::npos) task.complaint += "\n" + binary.log;
      } catch (const Error& error) {
        task.complaint = error.what();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  CHECK((!tasks.empty() || !listed.empty()));
  for (const Task& task : tasks) {
    CAPTURE(task.complaint);
    CHECK(task.complaint.empty());
  }
}

}  // namespace bs::test
