// Plain operations on the CPU beside the same expressions of xtensor, in turns.
#include <bs/bench/record.h>
#include <bs/interop/xtensor.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/random.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/sort.h>

#include <cmath>
#include <cstdio>
#include <xtensor/xmath.hpp>
#include <xtensor/xsort.hpp>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_xtensor [options]\n"
    "  --rows N      default 2048\n"
    "  --columns N   default 512\n";

/// One operation, by us and by xtensor, each of which gives a new tensor.
struct Pair {
  const char* name;
  std::function<Tensor()> ours, theirs;
};

std::vector<Pair> pairs(const Tensor& x, const Tensor& y) {
  const auto a = to_xtensor<float>(x), b = to_xtensor<float>(y);
  return {{"x * y + x", [=] { return add(mul(x, y), x); }, [=] { return from_xtensor(a * b + a); }},
          {"sum of rows", [=] { return sum(x, 1); },
           [=] { return from_xtensor(xt::cast<float>(xt::sum<float>(a, {1}))); }},
          {"cumsum of rows", [=] { return cumsum(x, 1); },
           [=] { return from_xtensor(xt::cumsum(a, 1)); }},
          {"sort of rows", [=] { return sort(x, 1).values; },
           [=] { return from_xtensor(xt::sort(a, 1)); }}};
}

void check(const Pair& pair) {
  const Tensor ours = pair.ours(), theirs = pair.theirs();
  BS_CHECK(ours.shape() == theirs.shape(), "{}: shapes {} and {}", pair.name, ours.shape(),
           theirs.shape());
  for (int64_t i = 0; i < ours.numel(); ++i)
    BS_CHECK(std::abs(ours.data<float>()[i] - theirs.data<float>()[i]) < 1e-2F,
             "{}: {} and {} at {}", pair.name, ours.data<float>()[i], theirs.data<float>()[i], i);
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  int64_t rows = 2048, columns = 512;
  arguments.read("--rows", rows);
  arguments.read("--columns", columns);
  arguments.finish();
  BS_CHECK(settings.device.is_cpu() && settings.dtype == f32,
           "bench_xtensor: xtensor computes on the CPU, here in f32");
  bench::Record record("xtensor", settings);
  for (const Pair& pair : pairs(randn({rows, columns}), randn({rows, columns}))) {
    check(pair);
    const std::vector<bench::Timing> times = bench::interleave(
        Device::cpu(), {[&] { pair.ours(); }, [&] { pair.theirs(); }}, settings.measure);
    const Json::Object cell{{"rows", rows}, {"columns", columns}};
    record.add({.cell = cell, .what = pair.name, .time = times[0]});
    record.add({.cell = cell, .what = pair.name, .by = "xtensor", .time = times[1]});
  }
  record.write();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
