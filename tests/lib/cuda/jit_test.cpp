#include <bs/lib/cuda/jit.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::cuda;
using test::read_file;
using test::write_file;

namespace {

constexpr jit::Header headers[] = {
    {"twice.cuh", "#include <once.cuh>\n__device__ inline float twice(float x) { return 2 * x; }\n",
     "1"},
    {"once.cuh", "using real = float;\n", "2"},
    {"broken.cuh", "inline int f() {\n  return not_there;\n}\n", "3"},
};

const char* const doubled = R"(
#include <twice.cuh>
struct Params { real* x; int n; };
extern "C" __global__ void doubled(const __grid_constant__ Params p) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.x[i] = twice(p.x[i]);
}
)";

jit::Source source(std::string code = doubled) { return {"doubled", std::move(code), headers}; }

/// The user's variables stay as they are, and the user's cache is out of reach.
class Environment {
 public:
  explicit Environment(const std::string& cache) { set("BS_CACHE_DIR", cache.c_str()); }
  ~Environment() {
    for (auto& [name, value] : before_)
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  void set(const char* name, const char* value) {
    const char* now = std::getenv(name);
    before_.emplace_back(name, now ? now : "");
    ::setenv(name, value, 1);
  }

 private:
  std::vector<std::pair<std::string, std::string>> before_;
};

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// The one folder of a cache.
std::string only_entry(const std::string& cache) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(cache))
    found.push_back(entry.path().string());
  REQUIRE(found.size() == 1);
  return found.front();
}

}  // namespace

TEST_CASE("jit: architectures") {
  CHECK(jit::architecture(80) == "sm_80");
  CHECK(jit::architecture(89) == "sm_89");
  CHECK(jit::architecture(90) == "sm_90a");
  CHECK(jit::architecture(100) == "sm_100a");
  CHECK(jit::architecture(120) == "sm_120a");
}

TEST_CASE("jit: compiles without a GPU, and tells what the kernel takes") {
  for (const int capability : {80, 90}) {
    const jit::Binary binary = jit::compile(source(), capability);
    CHECK(binary.image.substr(1, 3) == "ELF");
    CHECK(binary.resources.registers >= 4);
    CHECK(binary.resources.registers <= 32);
    CHECK(binary.resources.local_bytes == 0);
    CHECK(binary.resources.spill_bytes == 0);
    CHECK(binary.resources.shared_bytes == 0);
  }
}

TEST_CASE("jit: sees shared memory, local memory and spills") {
  const jit::Source shared{"k",
                           R"(
extern "C" __global__ void k(float* x) {
  __shared__ float s[100];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[99 - threadIdx.x];
})",
                           {}};
  CHECK(jit::compile(shared, 90).resources.shared_bytes == 400);

  const jit::Source local{"k",
                          R"(
extern "C" __global__ void k(float* x, const int* at) {
  float v[40];
  for (int i = 0; i < 40; ++i) v[i] = x[i];
  for (int i = 0; i < 40; ++i) v[at[i]] += v[i];
  for (int i = 0; i < 40; ++i) x[i] = v[i];
})",
                          {}};
  const jit::Resources frame = jit::compile(local, 90).resources;
  CHECK(frame.local_bytes == 160);
  CHECK(frame.spill_bytes == 0);

  const jit::Source spilling{"k",
                             R"(
extern "C" __global__ void __launch_bounds__(1024, 2) k(float* x, int n) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * 1024 + threadIdx.x];
  for (int j = 0; j < n; ++j)
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 1) % 64] + x[j];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = v[i];
})",
                             {}};
  const jit::Resources spilled = jit::compile(spilling, 90).resources;
  CHECK(spilled.registers == 32);
  CHECK(spilled.spill_bytes > 0);
  CHECK(spilled.local_bytes > 0);
}

TEST_CASE("jit: errors show the emitted lines") {
  const std::string own = message([] {
    jit::compile({"k", "extern \"C\" __global__ void k(int* x) {\n  *x = missing;\n}\n", {}}, 90);
  });
  CHECK(has(own, "jit: kernel k does not compile for sm_90a:\nk.cu(2): error: "));
  CHECK(has(own, "\"missing\" is undefined"));
  CHECK(has(own, "k.cu around line 2:\n"));
  CHECK(has(own, "  1: extern \"C\" __global__ void k(int* x) {\n> 2:   *x = missing;\n  3: }\n"));

  const std::string header = message([] {
    jit::compile({"k", "#include <broken.cuh>\nextern \"C\" __global__ void k() {}\n", headers},
                 90);
  });
  CHECK(has(header, "broken.cuh(2): error: "));
  CHECK(has(header, "> 2:   return not_there;\n"));

  const std::string missing = message([] {
    jit::compile({"k", "#include <nowhere.cuh>\n", headers}, 90);
  });
  CHECK(has(missing, "nowhere.cuh"));
  CHECK(has(missing, "> 1: #include <nowhere.cuh>\n"));

  const std::string old = message([] { jit::compile(source(), 30); });
  CHECK(has(old, "jit: kernel doubled: this NVRTC does not compile for compute capability 30"));
}

TEST_CASE("jit: the disk keeps what was compiled") {
  const test::Scratch scratch;
  const Environment environment(scratch / "cache");
  const jit::Binary first = jit::cached(source(), 90);
  const std::string entry = only_entry(scratch / "cache");
  CHECK(read_file(entry + "/kernel.cu") == doubled);
  CHECK(read_file(entry + "/kernel.cubin") == first.image);

  const auto written = std::filesystem::last_write_time(entry + "/kernel.cubin");
  const jit::Binary again = jit::cached(source(), 90);
  CHECK(again.image == first.image);
  CHECK(again.resources == first.resources);
  CHECK(again.log == first.log);
  CHECK(std::filesystem::last_write_time(entry + "/kernel.cubin") == written);
}
