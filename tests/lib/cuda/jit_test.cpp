#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/environment.h>
#include <bs/tests/support/scratch.h>
#include <bs/tests/support/streams.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::cuda;
using test::Environment;
using test::read_file;
using test::Recorded;
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
  const Environment environment("BS_CACHE_DIR", scratch / "cache");
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

TEST_CASE("jit: what others can write is neither used nor kept") {
  namespace fs = std::filesystem;
  const test::Scratch scratch;
  const std::string cache = scratch / "cache";
  const Environment environment("BS_CACHE_DIR", cache);
  const jit::Binary first = jit::cached(source(), 90);
  const std::string entry = only_entry(cache), identity = jit::identity(source(), 90);
  CHECK((fs::status(cache).permissions() & fs::perms::all) == fs::perms::owner_all);
  REQUIRE(jit::load_cached(source(), identity));
  for (const std::string& folder : {cache, entry}) {
    fs::permissions(folder, fs::perms::group_write | fs::perms::others_write,
                    fs::perm_options::add);
    CHECK_FALSE(jit::load_cached(source(), identity));
    fs::permissions(folder, fs::perms::owner_all);
    CHECK(jit::load_cached(source(), identity));
  }
  // A link in the entry's place may lead to anybody's.
  fs::rename(entry, entry + "-moved");
  fs::create_directory_symlink(entry + "-moved", entry);
  CHECK_FALSE(jit::load_cached(source(), identity));
}

TEST_CASE("jit: another source, architecture or header is another kernel") {
  const auto stem = [](const jit::Source& s, int capability) {
    return jit::file_stem(s, jit::identity(s, capability));
  };
  const std::string usual = stem(source(), 90);
  CHECK(stem(source(), 90) == usual);
  CHECK(stem(source(), 80) != usual);
  CHECK(stem(source(std::string(doubled) + "\n"), 90) != usual);
  jit::Header changed[] = {headers[0], headers[1], headers[2]};
  changed[2].hash = "4";  // broken.cuh, which is not included
  CHECK(stem({"doubled", doubled, changed}, 90) == usual);
  changed[1].hash = "4";  // once.cuh, which a header includes
  CHECK(stem({"doubled", doubled, changed}, 90) != usual);
}

TEST_CASE("jit: a damaged entry is made anew") {
  const test::Scratch scratch;
  const Environment environment("BS_CACHE_DIR", scratch / "cache");
  const jit::Binary first = jit::cached(source(), 90);
  const std::string entry = only_entry(scratch / "cache");
  const auto damaged = [&](const char* file, auto&& damage) {
    const std::string path = entry + file;
    const std::string whole = read_file(path);
    write_file(path, damage(whole));
    CHECK_FALSE(jit::load_cached(source(), jit::identity(source(), 90)));
    CHECK(jit::cached(source(), 90).resources == first.resources);
    CHECK(read_file(path) == whole);
    CHECK(only_entry(scratch / "cache") == entry);
  };
  for (const char* file : {"/kernel.cubin", "/kernel.cu", "/kernel.txt"}) {
    CAPTURE(file);
    damaged(file, [](const std::string&) { return std::string(); });
    damaged(file, [](const std::string& s) { return s.substr(0, s.size() / 2); });
    damaged(file, [](const std::string& s) { return s.substr(0, s.size() - 1); });
    damaged(file, [](std::string s) {
      s[s.size() / 3] = static_cast<char>(s[s.size() / 3] ^ 1);
      return s;
    });
  }
  std::filesystem::resize_file(entry + "/kernel.cubin", uintmax_t{1} << 40);  // sparse
  CHECK(jit::cached(source(), 90).image == first.image);
  std::filesystem::remove(entry + "/kernel.cubin");
  CHECK(jit::cached(source(), 90).image == first.image);
  CHECK(read_file(entry + "/kernel.cubin") == first.image);
}

// Run by the tests below in processes of their own.
TEST_CASE("jit worker" * doctest::skip()) {
  const std::string code = doubled;
  for (int i = 0; i < 6; ++i) {
    const jit::Source s = source(code + "// " + std::to_string(i) + "\n");
    REQUIRE(jit::cached(s, 90).resources.registers > 0);
  }
}

TEST_CASE("jit: processes may fill one cache at the same time") {
  const test::Scratch scratch;
  const Environment environment("BS_CACHE_DIR", scratch / "cache");
  const std::string worker =
      std::filesystem::read_symlink("/proc/self/exe").string() + " --no-skip -tc='jit worker'";
  const std::string both = "(" + worker + ") >" + (scratch / "a") + " 2>&1 & first=$!; (" + worker +
                           ") >" + (scratch / "b") + " 2>&1 && wait $first";
  const int status = std::system(both.c_str());
  CAPTURE(read_file(scratch / "a"));
  CAPTURE(read_file(scratch / "b"));
  CHECK(status == 0);
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "cache")) {
    ++entries;
    CHECK(has(entry.path().filename().string(), "doubled-"));  // nothing half made is left
  }
  CHECK(entries == 6);
  CHECK(jit::load_cached(source(std::string(doubled) + "// 3\n"),
                         jit::identity(source(std::string(doubled) + "// 3\n"), 90)));
}

TEST_CASE("jit: a folder that cannot be written costs one warning") {
  const test::Scratch scratch;
  write_file(scratch / "file", "no folder");
  const Environment environment("BS_CACHE_DIR", scratch / "file/cache");
  const std::string worker = std::filesystem::read_symlink("/proc/self/exe").string() +
                             " --no-skip -tc='jit worker' >" + (scratch / "out") + " 2>" +
                             (scratch / "errors");
  CHECK(std::system(worker.c_str()) == 0);
  const std::string errors = read_file(scratch / "errors");
  CAPTURE(errors);
  CHECK(has(errors, "bs: compiled kernels are not kept"));
  CHECK(has(errors, "file/cache"));
  CHECK(std::count(errors.begin(), errors.end(), '\n') == 1);
}

TEST_CASE("jit: dumps and recordings") {
  const test::Scratch scratch;
  Environment environment("BS_CACHE_DIR", scratch / "cache");
  environment.set("BS_JIT_DUMP", (scratch / "dump").c_str());
  const jit::Binary binary = jit::cached(source(), 90);
  const std::string stem =
      (scratch / "dump/") + jit::file_stem(source(), jit::identity(source(), 90));
  CHECK(read_file(stem + ".cu") == doubled);
  CHECK(read_file(stem + ".cubin") == binary.image);

  environment.set("BS_JIT_RECORD", (scratch / "kernels").c_str());
  jit::record(source(), 90);
  jit::record(source("// \"quoted\"\n"), 80);
  jit::record(source(), 90);
  const auto all = jit::read_recorded(scratch / "kernels", headers);
  REQUIRE(all.size() == 2);
  CHECK(all[0].source.name == "doubled");
  CHECK(all[0].source.code == doubled);
  CHECK(all[0].capability == 90);
  CHECK(all[1].source.code == "// \"quoted\"\n");
  CHECK(all[1].capability == 80);
  CHECK(jit::compile(all[0].source, 90).image == binary.image);

  write_file(scratch / "kernels", "{\"name\":\"k\"}\n");
  CHECK(has(message([&] { jit::read_recorded(scratch / "kernels", headers); }),
            "kernels: line 1 is no recorded kernel: name, capability or code is missing"));
  for (const char* name : {"../k", "a/b", "", ".", "k k"}) {
    write_file(scratch / "kernels",
               format("{\"name\":\"{}\",\"capability\":90,\"code\":\"\"}\n", name));
    CHECK(has(message([&] { jit::read_recorded(scratch / "kernels", headers); }),
              "is no name of a kernel"));
  }
}

TEST_CASE("jit: a GPU loads, launches and captures kernels" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Scratch scratch;
  const Environment environment("BS_CACHE_DIR", scratch / "cache");
  struct Params {
    float* x;
    int n;
  };
  const DeviceGuard guard(device);
  const jit::Kernel& kernel = jit::kernel(source(), device);
  CHECK(&jit::kernel(source(), device) == &kernel);
  CHECK(kernel.name() == "doubled");
  CHECK(kernel.ctas_per_sm(128, 0) >= 8);

  const Tensor host = Tensor::empty({1000}, f32, Device::cpu());
  for (int i = 0; i < 1000; ++i) host.data<float>()[i] = static_cast<float>(i);
  const Tensor x = host.to(device);
  const Params params{x.data<float>(), 1000};
  const Stream stream = current_stream(device);
  const jit::LaunchShape shape{.grid = {8}, .block = {128}};
  jit::launch(kernel, shape, stream, params);
  jit::launch(kernel, {.grid = {8}, .block = {128}, .programmatic = true}, stream, params);
  // 64 KiB must be asked for, and a cluster of 8 takes no asking; they change nothing here.
  jit::launch(kernel, {.grid = {8}, .block = {128}, .cluster = 8, .shared_bytes = 64 << 10}, stream,
              params);
  CHECK(x.to(Device::cpu()).data<float>()[999] == 8 * 999);

  CHECK(has(message([&] { jit::launch(kernel, shape, stream, params, 1); }),
            "jit: kernel doubled takes parameters of [16] bytes; it is launched with [16, 4]"));
  CHECK(has(message([&] { jit::launch(kernel, {.grid = {8}, .block = {2048}}, stream, params); }),
            "jit: launch of kernel doubled on cuda:0 failed: cudaErrorInvalid"));
  CHECK(has(message([&] {
              jit::launch(kernel, {.grid = {8}, .block = {32}, .shared_bytes = 1 << 20}, stream,
                          params);
            }),
            "jit: kernel doubled wants 1048576 bytes of dynamic shared memory; cuda:0 has "));

  // A kernel may be compiled and loaded while its stream is captured.
  const jit::Source late = source(std::string(doubled) + "// late\n");
  const Recorded doubling(stream,
                          [&] { jit::launch(jit::kernel(late, device), shape, stream, params); });
  for (int i = 0; i < 2; ++i) doubling.run();
  CHECK(x.to(Device::cpu()).data<float>()[999] == 32 * 999);
}

TEST_CASE("jit: threads that want one kernel of a GPU get one" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const DeviceGuard guard(device);
  const jit::Source wanted = source(std::string(doubled) + "// threads\n");
  jit::KernelFamily<int> family;
  std::vector<const jit::Kernel*> got(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] { got[i] = &family.get(7, device, [&] { return wanted; }); });
  for (std::thread& thread : threads) thread.join();
  for (const jit::Kernel* one : got) CHECK(one == got[0]);
  bool emitted = false;
  family.get(7, device, [&] {
    emitted = true;
    return wanted;
  });
  CHECK_FALSE(emitted);
}
