// What kernels compiled at run time cost before their first launch: compiled by NVRTC, read from
// the cache on disk, loaded onto the GPU, looked up in memory. Without a GPU the first two.
#include <bs/bench/record.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/cuda/runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace bs;
namespace jit = bs::cuda::jit;

namespace {

constexpr const char* help =
    "bench_jit [options]\n"
    "  --recorded FILE         kernels of a run with BS_JIT_RECORD=FILE; default: those of\n"
    "                          dsd and sdd in the dtype\n"
    "  --blocks 16,32,...      of these, default 16,128\n"
    "  --sm N                  compute capability to compile for, default that of the GPU, or 90\n"
    "  --compilations N        of each kernel, default 3\n";

/// A cache of our own, empty at first and removed at the end.
class CacheFolder {
 public:
  CacheFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("bs-bench-jit-" + std::to_string(getpid()))) {
    ::setenv("BS_CACHE_DIR", path_.c_str(), 1);
  }
  ~CacheFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

 private:
  std::filesystem::path path_;
};

std::vector<jit::Source> sources(const std::string& recorded, const std::vector<int>& blocks,
                                 DType dtype) {
  std::vector<jit::Source> out;
  if (!recorded.empty()) {
    for (jit::Recorded& kernel : jit::read_recorded(recorded, cuda::device_headers()))
      out.push_back(std::move(kernel.source));
    return out;
  }
  for (const cuda::TiledKernel& kernel : cuda::all_tiled_kernels())
    if (kernel.dtype == dtype && kernel.a_along_k && !kernel.b_along_k &&
        std::find(blocks.begin(), blocks.end(), kernel.block) != blocks.end())
      out.push_back(cuda::source_of(kernel));
  return out;
}

/// Without the two runs that warm up: it takes long, and nothing gets warm.
bench::Timing compilation(const jit::Source& source, int capability, int times) {
  std::vector<double> seconds;
  for (int i = 0; i < std::max(times, 1); ++i)
    seconds.push_back(bench::once(Device::cpu(), [&] { jit::compile(source, capability); }));
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  return {seconds[n / 2], seconds[n / 4], seconds[n * 3 / 4], static_cast<int>(n)};
}

bench::Timing divided(bench::Timing time, double by) {
  return {time.median / by, time.low / by, time.high / by, time.runs};
}

/// Loading onto the GPU, and finding what is loaded.
void measure_on_gpu(const jit::Source& source, const jit::Binary& binary, const Json::Object& cell,
                    const bench::Settings& settings, bench::Record& record) {
  const cuda::DeviceGuard guard(settings.device);
  const auto add = [&](const char* what, const bench::Timing& time) {
    record.add({.cell = cell, .what = what, .time = time});
  };
  add("load", bench::measure(
                  Device::cpu(), [&] { jit::Kernel(source.name, settings.device, binary); },
                  settings.measure));
  constexpr int calls = 1000;
  const auto many = [&](const auto& call) {
    const bench::Work work = [&] {
      for (int i = 0; i < calls; ++i) call();
    };
    return divided(bench::measure(Device::cpu(), work, settings.measure), calls);
  };
  add("by source", many([&] { jit::kernel(source, settings.device); }));
  jit::KernelFamily<int> family;
  add("by key", many([&] { family.get(0, settings.device, [&] { return source; }); }));
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments, bf16);
  std::string recorded;
  std::vector<int> blocks{16, 128};
  int times = 3;
  int capability =
      settings.device.is_cuda() ? cuda::device_properties(settings.device).capability : 90;
  arguments.read("--recorded", recorded);
  arguments.read("--blocks", blocks);
  arguments.read("--compilations", times);
  arguments.read("--sm", capability);
  arguments.finish();

  const CacheFolder folder;
  bench::Record record("jit", settings);
  for (const jit::Source& source : sources(recorded, blocks, settings.dtype)) {
    const jit::Binary binary = jit::compile(source, capability);
    BS_CHECK(jit::cached(source, capability).image == jit::cached(source, capability).image,
             "bench: {} came back from the cache as another", source.name);
    const Json::Object cell{{"kernel", source.name},
                            {"architecture", jit::architecture(capability)},
                            {"registers", binary.resources.registers},
                            {"spill_bytes", binary.resources.spill_bytes}};
    record.add({.cell = cell, .what = "compile", .time = compilation(source, capability, times)});
    const bench::Work read = [&] { jit::cached(source, capability); };
    record.add({.cell = cell,
                .what = "from disk",
                .time = bench::measure(Device::cpu(), read, settings.measure)});
    if (settings.device.is_cuda()) measure_on_gpu(source, binary, cell, settings, record);
  }
  record.write();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
