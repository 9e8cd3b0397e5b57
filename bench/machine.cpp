#include <bs/bench/commit.h>
#include <bs/bench/machine.h>
#include <bs/kernels/cpu_level.h>
#include <bs/lib/threads.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <string>
#if BS_WITH_CUDA
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/runtime.h>
#endif

namespace bs::bench {

namespace {

/// What follows the first match of `pattern` in a text file, up to its first group's end.
std::string find_in(const char* path, const std::string& pattern) {
  std::ifstream file(path);
  const std::regex expression(pattern);
  std::smatch match;
  for (std::string line; std::getline(file, line);)
    if (std::regex_search(line, match, expression)) return match[1];
  return {};
}

std::string today() {
  const std::chrono::year_month_day day(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", int{day.year()}, unsigned{day.month()},
                unsigned{day.day()});
  return text;
}

#if BS_WITH_CUDA
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

void describe_gpu(Device device, Json::Object& machine) {
  cudaDeviceProp properties{};
  BS_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
  int runtime = 0;
  BS_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  machine.emplace_back("gpu", properties.name);
  machine.emplace_back("multiprocessors", properties.multiProcessorCount);
  machine.emplace_back("capability", properties.major * 10 + properties.minor);
  const std::string driver = find_in("/proc/driver/nvidia/version", R"(  ([0-9]+\.[0-9.]+)  )");
  if (!driver.empty()) machine.emplace_back("driver", driver);
  machine.emplace_back("cuda", version(runtime));
}
#endif

}  // namespace

Json::Object describe_machine(Device device) {
  Json::Object machine;
#if BS_WITH_CUDA
  if (device.is_cuda()) describe_gpu(device, machine);
#endif
  if (device.is_cpu()) {
    const std::string model = find_in("/proc/cpuinfo", R"(^model name\s*:\s*(.*))");
    if (!model.empty()) machine.emplace_back("cpu", model);
    machine.emplace_back("threads", threads());
    machine.emplace_back("instructions", cpu_level());
  }
  machine.emplace_back("commit", BS_COMMIT);
  machine.emplace_back("date", today());
  return machine;
}

}  // namespace bs::bench
