// What CUPTI's records become, which needs no GPU; and a GPU's own.
#include <bs/kernels/binary.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/matmul.h>
#include <bs/lib/cuda/activity.h>
#include <bs/lib/json.h>
#include <bs/lib/profiler.h>
#include <bs/lib/trace.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#if __has_include(<cupti.h>)
#include <cupti.h>
#endif

using namespace bs;

TEST_CASE("activity: a kernel's name without its parameters and rooms") {
  const auto name = [](const char* text) { return cuda::short_kernel_name(text); };
  CHECK(name("void bs::cuda::(anonymous namespace)::copy_kernel<float, 4>(float*, int)") ==
        "copy_kernel<float, 4>");
  CHECK(name("bs::map<bs::Add<__half>, std::array<int, 3> >(bs::Walk)") ==
        "map<bs::Add<__half>, std::array<int, 3> >");
  CHECK(name("plain") == "plain");
  CHECK(name("gemm(float const*)") == "gemm");
  CHECK(name("") == "");
}

#if __has_include(<cupti.h>)
TEST_CASE("activity: records become activities, with the ranges that launched them") {
  cuda::ActivityLog log(3);
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = 500, kernel.end = 700, kernel.deviceId = 1, kernel.streamId = 7;
  kernel.correlationId = 12;
  kernel.name = "_ZN2bs4gemmIfEEvPT_";
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.bytes = 4096, copy.start = 100, copy.end = 250, copy.streamId = 9, copy.correlationId = 5;
  CUpti_ActivityMemset4 fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.bytes = 64, fill.start = 300, fill.end = 310, fill.correlationId = 6;
  CUpti_ActivityExternalCorrelation range{};
  range.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  range.correlationId = 12, range.externalId = 33;
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  log.add(&kernel);
  log.add(&range);  // before or after what it is about
  log.add(&call);
  log.add(&copy);
  log.add(&fill);
  log.add(&kernel);  // one too many
  CHECK(log.dropped() == 1);
  const auto all = log.finish(1000);
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "copy to the GPU");
  CHECK(all[0].bytes == 4096);
  CHECK(all[0].begin == 1100);
  CHECK(all[0].launched == 0);
  CHECK_FALSE(all[0].kernel);
  CHECK(all[1].name == "fill");
  CHECK(all[2].name == "gemm<float>");
  CHECK(all[2].kernel);
  CHECK(all[2].device == 1);
  CHECK(all[2].stream == 7);
  CHECK(all[2].end == 1700);
  CHECK(all[2].launched == 33);
}
#endif

TEST_CASE("activity: a profiler sees what a GPU does" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const Tensor a = full({512, 512}, 0.5, f32, device);
  matmul(a, a);  // kernels and handles are made
  synchronize(device);
  Profiler profiler;
  {
    const TraceRange range("step");
    const Tensor b = add(a, 1);
    matmul(b, b);
    Tensor::from<float>({1, 2, 3}).to(device);
  }
  profiler.stop();
  MESSAGE(profiler.table());
  if (!profiler.unwatched().empty()) {
    MESSAGE("SKIPPED: ", profiler.unwatched());
    return;
  }
  const auto events = profiler.device_events();
  REQUIRE(events.size() >= 3);
  std::set<std::string> from;
  for (const DeviceEvent& e : events) {
    CHECK(e.end >= e.begin);
    CHECK(e.begin >= 0);
    if (e.from) from.insert(e.from);
  }
  CHECK(from.contains("add"));
  CHECK(from.contains("matmul"));
  CHECK(std::ranges::any_of(events, [](const DeviceEvent& e) { return e.bytes == 12; }));
  for (const int64_t most : {1, 2}) {
    const std::string table = profiler.table({.rows = most});
    const std::string kernels = table.substr(table.find("on the GPU"));
    CHECK(std::ranges::count(kernels, '\n') == 1 + most);
  }
  const auto rows = profiler.rows();
  const auto row = std::ranges::find(rows, "matmul", &ProfilerRow::name);
  REQUIRE(row != rows.end());
  CHECK(row->device_seconds > 0);
  CHECK(row->device_seconds < 1);
  const test::Scratch folder;
  profiler.write_trace(folder / "trace.json");
  std::ifstream file(folder / "trace.json");
  const Json trace = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  size_t on_gpu = 0;
  for (const Json& e : trace.find("traceEvents")->array())
    if (const Json* category = e.find("cat"); category && category->string() == "gpu") ++on_gpu;
  CHECK(on_gpu == events.size());
}
