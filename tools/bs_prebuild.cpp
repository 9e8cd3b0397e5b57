// Compiles kernels ahead of the first run that needs them, on any machine that has NVRTC.
#include <bs/kernels/cuda/attention/decode_attention.h>
#include <bs/kernels/cuda/attention/sparse_attention_kernels.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_warpgroup.h>
#include <bs/kernels/cuda/block_sparse/gemm_blocks.h>
#include <bs/kernels/cuda/gpu/gpu_measure.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/cuda/loaded.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

constexpr const char* help =
    "bs-prebuild [options] [FILE...]\n"
    "Fills the cache of compiled kernels with those that an earlier run needed. Each FILE is what\n"
    "such a run wrote with BS_JIT_RECORD=FILE in its environment. No GPU is needed here.\n"
    "  --sm 80,90,...   compute capabilities to compile for; default: those of the recorded runs\n"
    "  --tables         also every kernel of the library's fixed tables: block-sparse products "
    "and\n"
    "                   attention, all dtypes, blocks and sizes; wants --sm\n"
    "  --gpu            what plans know of the GPUs here, and whence, and nothing else; measures\n"
    "                   once what no GPU tells\n"
    "  --cache FOLDER   default: $BS_CACHE_DIR, else $XDG_CACHE_HOME/bs, else ~/.cache/bs\n"
    "  --jobs N         kernels compiled at a time; default: one a core\n"
    "  --quiet          one line at the end instead of one a kernel\n";

struct Options {
  std::vector<int> capabilities;
  std::vector<std::string> files;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  bool tables = false, gpu = false, quiet = false;
};

std::vector<int> numbers(const std::string& option, const std::string& list) {
  std::vector<int> out;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');) {
    char* end = nullptr;
    const long value = std::strtol(item.c_str(), &end, 10);
    BS_CHECK(!item.empty() && *end == '\0' && value > 0 && value < 10000,
             "bs-prebuild: {} wants positive numbers, not \"{}\"", option, item);
    out.push_back(static_cast<int>(value));
  }
  return out;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string {
      BS_CHECK(i + 1 < argc, "bs-prebuild: {} wants a value", name);
      return argv[++i];
    };
    if (name == "--help") {
      std::fputs(help, stdout);
      std::exit(0);
    } else if (name == "--sm") {
      o.capabilities = numbers(name, value());
    } else if (name == "--cache") {
      ::setenv("BS_CACHE_DIR", value().c_str(), 1);
    } else if (name == "--jobs") {
      o.jobs = static_cast<unsigned>(numbers(name, value()).at(0));
    } else if (name == "--tables") {
      o.tables = true;
    } else if (name == "--gpu") {
      o.gpu = true;
    } else if (name == "--quiet") {
      o.quiet = true;
    } else {
      BS_CHECK(!name.starts_with("-"), "bs-prebuild: unknown option {}; see --help", name);
      o.files.push_back(name);
    }
  }
  BS_CHECK(o.gpu || o.tables || !o.files.empty(),
           "bs-prebuild: no file of recorded kernels is given; see --help");
  BS_CHECK(!o.tables || !o.capabilities.empty(), "bs-prebuild: --tables wants --sm; see --help");
  return o;
}

void print_gpus() {
  const int count = count_devices();
  if (count == 0)
    std::printf("no GPU is here; plans take the numbers of an H100\n%s",
                describe(stand_in_model()).c_str());
  for (int i = 0; i < count; ++i) {
    const Device device = Device::cuda(i);
    std::printf("GPU %d: %s\n%s", i, gpu_key(device).name.c_str(),
                describe(model_of(device)).c_str());
  }
}

/// Every kernel that can be named ahead of time.
std::vector<jit::Source> tables(int capability) {
  std::vector<jit::Source> all = measuring_sources();
  for (const TiledKernel& kernel : all_tiled_kernels()) all.push_back(source_of(kernel));
  for (const AttentionKernel& kernel : all_attention_kernels())
    all.push_back(attention_source(kernel));
  for (const DecodeKernel& kernel : all_decode_kernels()) all.push_back(decode_source(kernel));
  for (const DType dtype : {f16, bf16, f32, f64}) all.push_back(attention_numbers_source(dtype));
  if (capability != 90) return all;  // wgmma is Hopper's alone
  for (const WarpgroupKernel& kernel : all_warpgroup_kernels()) all.push_back(source_of(kernel));
  for (const GemmBlocksKernel& kernel : all_gemm_blocks_kernels())
    all.push_back(gemm_blocks_source(kernel));
  for (const Tf32Kernel& kernel : all_tf32_kernels()) all.push_back(source_of(kernel));
  for (const WarpgroupForward& kernel : all_warpgroup_forward_kernels())
    all.push_back(warpgroup_forward_source(kernel));
  return all;
}

/// The kernels of all files, for each architecture wanted.
std::vector<jit::Recorded> wanted(const Options& o) {
  std::vector<jit::Recorded> all;
  for (const std::string& file : o.files)
    for (jit::Recorded& kernel : jit::read_recorded(file, device_headers())) {
      if (o.capabilities.empty()) all.push_back(kernel);
      for (int capability : o.capabilities) all.push_back({kernel.source, capability});
    }
  if (o.tables)
    for (int capability : o.capabilities)
      for (const jit::Source& source : tables(capability)) all.push_back({source, capability});
  return all;
}

/// Compiles what the cache lacks; gives the number of kernels that are there then. The first that
/// was compiled and not kept ends it: so would all others.
size_t build(const std::vector<jit::Recorded>& all, const Options& o) {
  std::atomic<size_t> next = 0, kept = 0;
  std::mutex output;
  const auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      const auto& [source, capability] = all[i];
      const std::string name = source.name + " for " + jit::architecture(capability);
      try {
        const jit::Resources r = jit::cached(source, capability).resources;
        if (!jit::load_cached(source, jit::identity(source, capability))) {
          next = all.size();
          BS_THROW(IoError, "compiled, but not kept in {}", jit::cache_folder());
        }
        ++kept;
        const std::lock_guard lock(output);
        if (!o.quiet)
          std::printf("%s: %d registers, %d bytes local, %d bytes shared\n", name.c_str(),
                      r.registers, r.local_bytes, r.shared_bytes);
      } catch (const std::exception& error) {
        const std::lock_guard lock(output);
        std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min<size_t>(o.jobs, all.size()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return kept;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
  if (o.gpu) {
    print_gpus();
    return 0;
  }
  nvrtc();  // one error where it is not there, not one of each kernel
  const auto start = std::chrono::steady_clock::now();
  const std::vector<jit::Recorded> all = wanted(o);
  const size_t kept = build(all, o);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  std::printf("%zu kernels in %s, %.1f s\n", kept, jit::cache_folder().c_str(), time.count());
  return kept == all.size() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
