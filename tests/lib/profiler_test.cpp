#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/lstm.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/sgd.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/json.h>
#include <bs/lib/patterns.h>
#include <bs/lib/profiler.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>

using namespace bs;

namespace {

thread_local int64_t allocations = 0;

const ProfilerEvent& find(const Profiler& profiler, const std::string& name) {
  const auto events = profiler.events();
  const auto at = std::ranges::find(events, name, &ProfilerEvent::name);
  REQUIRE(at != events.end());
  return *at;
}

std::string shapes(const ProfilerEvent& event) {
  std::string all;
  for (const ProfiledTensor& t : event.tensors) all += to_string(t.dtype) + to_string(t.shape);
  return all;
}

Json trace_of(const Profiler& profiler) {
  const test::Scratch folder;
  const std::string path = folder / "trace.json";
  profiler.write_trace(path);
  std::ifstream file(path);
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace

// Counts allocations; under a sanitizer these are its own.
#if !BS_SANITIZED
void* operator new(size_t bytes) {
  ++allocations;
  if (void* pointer = std::malloc(bytes > 0 ? bytes : 1)) return pointer;
  throw std::bad_alloc();
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }
#endif

TEST_CASE("profiler: operations with their tensors, FLOPs, bytes and density") {
  const Tensor a = ones({4, 8}, f32), b = ones({8, 3}, f64);
  const auto layout = Layout::from_mask(ones({1, 2, 2}, boolean).slice(1, 0, 2), 16);
  const Tensor x = ones({32, 5}, f32);
  Profiler profiler;
  CHECK(profiling());
  matmul(a, ones({8, 3}, f32));
  add(b, b);
  add(ones({1, 6}, f32).expand({1000, 6}), 1);
  dsd(SparseTensor{layout, ones({layout->nnz(), 16, 16}, f32)}, x);
  const SgdParameter parameter{.value = x, .gradient = x, .momentum = {}, .master = {}};
  sgd({&parameter, 1}, {});
  profiler.stop();
  CHECK(!profiling());

  const ProfilerEvent& product = find(profiler, "matmul");
  CHECK(product.operation);
  CHECK(shapes(product) == "f32[4, 8]f32[8, 3]f32[4, 3]");
  CHECK(product.work.flops == 2 * 4 * 8 * 3);
  CHECK(product.work.bytes == 4 * (32 + 24 + 12));
  CHECK(product.work.density == 0);
  CHECK(product.end > product.begin);
  CHECK(product.begin >= 0);
  const ProfilerEvent& sparse = find(profiler, "dsd");
  CHECK(sparse.work.flops == 2 * 4 * 256 * 5);
  CHECK(sparse.work.density == layout->density());
  CHECK(find(profiler, "sgd").work.bytes == 3 * 4 * 160);
  CHECK(profiler.dropped() == 0);
}

TEST_CASE("profiler: the useful work of convolutions, LSTMs and attention") {
  const LayoutPtr layout = patterns::dense({.rows = 2, .block = 16}, {.causal = true});
  const Tensor heads = ones({1, 2, 32, 8}, f32);
  const LSTMDirection direction{.weights = {.ih = ones({8, 4}, f32), .hh = ones({8, 2}, f32)}};
  Profiler profiler;
  conv2d(ones({1, 2, 4, 4}, f32), ones({3, 2, 3, 3}, f32), {});
  lstm(ones({3, 2, 4}, f32), {&direction, 1}, {});
  sparse_attention(heads, heads, heads, layout, {.causal = true});
  profiler.stop();
  CHECK(find(profiler, "conv2d").work.flops == 2 * (2 * 2 * 3) * (2 * 3 * 3));
  CHECK(find(profiler, "lstm").work.flops == 2 * (3 * 2 * 8) * 2);
  CHECK(find(profiler, "linear").work.flops == 2 * (3 * 2 * 8) * 4);
  CHECK(find(profiler, "sparse_attention").work.flops == 2 * 2 * (3 * 256) * (8 + 8));
  CHECK(find(profiler, "sparse_attention").work.density == .75);
}

TEST_CASE("profiler: what is inside of what") {
  Profiler profiler;
  {
    const TraceRange outer("outer");
    {
      const TraceRange inner("inner");
      fill(Tensor::empty({1000}, f32), 1);
    }
    fill(Tensor::empty({10}, f64), 1);
  }
  profiler.stop();
  const auto events = profiler.events();
  REQUIRE(events.size() == 4);
  const char* names[] = {"outer", "inner", "fill", "fill"};
  const int depths[] = {0, 1, 2, 1};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(std::string(events[i].name) == names[i]);
    CHECK(events[i].depth == depths[i]);
    CHECK(events[i].operation == (i >= 2));
  }
  const auto length = [&](size_t i) { return events[i].end - events[i].begin; };
  CHECK(events[0].self == length(0) - length(1) - length(3));
  CHECK(events[1].self == length(1) - length(2));
  CHECK(events[2].self == length(2));
  for (const size_t i : {1, 3}) {
    CHECK(events[i].begin >= events[0].begin);
    CHECK(events[i].end <= events[0].end);
  }
  CHECK(events[1].end <= events[3].begin);
}

TEST_CASE("profiler: each thread has its own ranges") {
  Profiler profiler;
  const TraceRange range("around nothing that this thread ends in time");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int n = 0; n < 100; ++n) {
        const TraceRange step("step");
        fill(Tensor::empty({3}, f32), n);
      }
    });
  for (std::thread& thread : threads) thread.join();
  profiler.stop();
  std::vector<int> steps(5);
  for (const ProfilerEvent& event : profiler.events()) {
    CHECK(event.depth == (event.operation ? 1 : 0));
    if (!event.operation) ++steps[static_cast<size_t>(event.thread)];
  }
  std::ranges::sort(steps);
  CHECK(steps == std::vector<int>{0, 100, 100, 100, 100});
}

TEST_CASE("profiler: a trace that a viewer can read") {
  Profiler profiler;
  {
    const TraceRange range("a \"range\"\n of μs");
    matmul(ones({2, 3}, f32), ones({3, 4}, f32));
  }
  std::thread([] { fill(Tensor::empty({3}, f32), 1); }).join();
  profiler.stop();
  const Json trace = trace_of(profiler);
  int ranges = 0, products = 0, names = 0;
  for (const Json& event : trace.find("traceEvents")->array()) {
    const std::string& phase = event.find("ph")->string();
    const std::string& name = event.find("name")->string();
    if (phase == "M") {
      ++names;
      continue;
    }
    CHECK(phase == "X");
    CHECK(event.find("ts")->number() >= 0);
    CHECK(event.find("dur")->number() >= 0);
    if (name == "a \"range\"\n of μs") {
      ++ranges;
      CHECK(event.find("cat")->string() == "range");
    }
    if (name != "matmul") continue;
    ++products;
    const Json& arguments = *event.find("args");
    CHECK(arguments.find("tensors")->string() == "f32 [2, 3], f32 [3, 4], f32 [2, 4]");
    CHECK(arguments.find("device")->string() == "cpu");
    CHECK(arguments.find("flops")->number() == 48);
    CHECK(arguments.find("bytes")->number() == 4 * (6 + 12 + 8));
    CHECK(arguments.find("TFLOP/s")->number() > 0);
  }
  CHECK(ranges == 1);
  CHECK(products == 1);
  CHECK(names == 2);
  Profiler empty;
  empty.stop();
  CHECK(trace_of(empty).find("traceEvents")->array().empty());
}

TEST_CASE("profiler: the table, by name and by shape") {
  Profiler profiler;
  {
    const TraceRange range("step");
    for (int i = 0; i < 3; ++i) matmul(ones({2, 3}, f32), ones({3, 4}, f32));
    matmul(ones({5, 3}, f32), ones({3, 4}, f32));
  }
  profiler.stop();
  const auto rows = profiler.rows();
  const auto product = std::ranges::find(rows, "matmul", &ProfilerRow::name);
  REQUIRE(product != rows.end());
  CHECK(product->calls == 4);
  CHECK(product->work.flops == 3 * 48 + 120);
  CHECK(product->seconds >= product->self_seconds);
  CHECK(std::ranges::is_sorted(rows, std::greater<>(), &ProfilerRow::self_seconds));
  const auto by_shape = profiler.rows(true);
  CHECK(std::ranges::count(by_shape, "matmul", &ProfilerRow::name) == 2);
  const std::string table = profiler.table();
  for (const char* word :
       {"operation", "calls", "TFLOP/s", "GB/s", "matmul", "fill", "range", "step"})
    CHECK(table.find(word) != std::string::npos);
  CHECK(profiler.table({.rows = 1}).find("(1 more operations)") != std::string::npos);
  CHECK(profiler.table({.by_shape = true}).find("f32 [5, 3], f32 [3, 4], f32 [5, 4]") !=
        std::string::npos);
}

TEST_CASE("profiler: how near operations come to what their device can do") {
  const RatesOf rates = [](Device) {
    return DeviceRates{.bytes = 1e9, .half = 1e3, .single = 1e6, .wide = 0};
  };
  Profiler profiler;
  for (const DType dtype : {f16, f32, f64}) matmul(ones({2, 3}, dtype), ones({3, 4}, dtype));
  profiler.stop();
  const auto rows = profiler.rows(true, rates);
  const auto least = [&](const char* tensors) {
    const auto found = std::ranges::find(rows, tensors, &ProfilerRow::tensors);
    REQUIRE(found != rows.end());
    return found->least_seconds;
  };
  CHECK(least("f16 [2, 3], f16 [3, 4], f16 [2, 4]") == doctest::Approx(48e-3));
  CHECK(least("f32 [2, 3], f32 [3, 4], f32 [2, 4]") == doctest::Approx(48e-6));
  CHECK(least("f64 [2, 3], f64 [3, 4], f64 [2, 4]") == 0);  // nobody knows that rate
  CHECK(DeviceRates{.bytes = 1e9, .single = 1e12}.least({.flops = 48, .bytes = 104}, f32) ==
        doctest::Approx(104e-9));
  CHECK(profiler.table({.rates = rates}).find("of peak") != std::string::npos);
  CHECK(profiler.table().find("of peak") == std::string::npos);
}

TEST_CASE("profiler: off it allocates and records nothing") {
  { const TraceRange first("finds the tools that may look"); }
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) const TraceRange range("nobody looks");
  CHECK(allocations == before);
  const TraceRange open("begun before");
  Profiler profiler;
  { const TraceRange range("inside"); }
  profiler.stop();
  CHECK(profiler.events().size() == 1);
}

TEST_CASE("profiler: one at a time, and only so many events") {
  {
    Profiler first({.most_events = 5});
    CHECK_THROWS_WITH_AS(Profiler(), "Profiler: another one records", Error);
    CHECK_THROWS_WITH_AS(first.events(), "Profiler: events() while it records; call stop() first",
                         Error);
    for (int i = 0; i < 12; ++i) const TraceRange range("many");
    first.stop();
    first.stop();
    CHECK(first.events().size() == 5);
    CHECK(first.dropped() == 7);
    CHECK(first.table().find("(7 later events were not kept)") != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(Profiler({.most_events = 0}), "Profiler: 0 events", Error);
  Profiler second;  // a range that outlives its profiler is no event of the next
  auto across = std::make_unique<TraceRange>("across");
  second.stop();
  Profiler third;
  across.reset();
  { const TraceRange range("third"); }
  third.stop();
  CHECK(third.events().size() == 1);
  CHECK(second.events().empty());
}
