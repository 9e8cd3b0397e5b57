// Every operation that moves bytes, beside the time that a copy of as many bytes takes.
#include <bs/bench/plain_cases.h>
#include <bs/bench/record.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_plain [options]\n"
    "  --rows N             default 16384\n"
    "  --columns N          default 4096\n"
    "  --shapes RxC,...     in place of them: each set at all of these\n"
    "  --sweep LEAST,MOST   in place of them: matrices of 1024 columns from so many bytes on, "
    "each\n"
    "                       four times the last, and of 16 MiB with rows of 1 to 100000\n"
    "  --sets NAME,...      copy, binary, compare, unary, reduce, rows, products, losses, "
    "pointwise,\n"
    "                       select, fill, blocks, optimisers, images; default all; or sizes:\n"
    "                       a case or a few for each kind of kernel, to sweep over\n"
    "  --only SUBSTRING     cases whose \"operation: layout\" contains it\n";

/// |a - b| / |b| over all elements; NaN in one alone makes it NaN.
double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = to(cast(a, f64), Device::cpu()), y = to(cast(b, f64), Device::cpu());
  double difference = 0, size = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = x.data<double>()[i], v = y.data<double>()[i];
    if (u == v || (std::isnan(u) && std::isnan(v))) continue;
    difference += (u - v) * (u - v);
  }
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double v = y.data<double>()[i];
    if (std::isfinite(v)) size += v * v;
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

/// A sum of all may be a tenth of what such sums are in the mean.
double bound(DType dtype) {
  return dtype == f64 ? 1e-12 : dtype == f32 ? 1e-4 : dtype == f16 ? 2e-3 : 1e-2;
}

/// Compares both devices on few rows. How many cases are wrong.
int check(const std::string& set, const bench::PlainSize& size, const bench::Settings& settings) {
  const bench::PlainSize small{std::min<int64_t>(size.rows, 512),
                               std::min<int64_t>(size.columns, 1024)};
  const auto ours = bench::plain_cases(set, small, settings.dtype, settings.device);
  const auto twins = bench::plain_cases(set, small, settings.dtype, Device::cpu());
  int wrong = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    // Of one column or two a norm has no gradient: what comes out is what was rounded.
    if (small.columns < 3 && ours[i].what == "layer_norm_backward") continue;
    const std::vector<Tensor> a = ours[i].run(), b = twins[i].run();
    for (size_t k = 0; k < a.size(); ++k) {
      const double error = distance(a[k], b[k]);
      if (error <= bound(settings.dtype)) continue;
      std::printf("WRONG: %s, %s, result %zu is off by %g\n", ours[i].what.c_str(),
                  ours[i].layout.c_str(), k, error);
      ++wrong;
    }
  }
  return wrong;
}

void measure(const std::string& set, const std::string& only, const bench::PlainSize& size,
             const bench::Settings& settings, bench::Record& record) {
  for (const bench::PlainCase& c : plain_cases(set, size, settings.dtype, settings.device)) {
    if ((c.what + ": " + c.layout).find(only) == std::string::npos) continue;
    record.add({.cell = {{"set", set}, {"rows", size.rows}, {"columns", size.columns}},
                .what = c.what + ": " + c.layout,
                .time = bench::measure(
                    settings.device, [&c] { c.run(); }, settings.measure),
                .flops = c.flops,
                .bytes = c.bytes});
  }
}

bench::PlainSize parse(const std::string& shape) {
  bench::PlainSize size;
  char x = 0;
  std::istringstream in(shape);
  BS_CHECK((in >> size.rows >> x >> size.columns) && x == 'x' && size.rows > 0 && size.columns > 0,
           "bench_plain: {} is not ROWSxCOLUMNS", shape);
  return size;
}

/// Matrices of `least` bytes to `most`, then rows of all lengths.
std::vector<bench::PlainSize> sweep(double least, double most, DType dtype) {
  constexpr int64_t columns = 1024, elements = int64_t{1} << 22;
  std::vector<bench::PlainSize> sizes;
  const auto row = static_cast<double>(columns) * static_cast<double>(size_of(dtype));
  for (double bytes = least; bytes <= most; bytes *= 4)
    if (bytes < row) {
      sizes.push_back({1, static_cast<int64_t>(bytes) / static_cast<int64_t>(size_of(dtype))});
    } else {
      sizes.push_back({static_cast<int64_t>(bytes / row), columns});
    }
  for (const int64_t length : {1, 3, 16, 64, 100, 333, 2000, 10000, 32768, 100000})
    sizes.push_back({elements / length, length});
  return sizes;
}

std::vector<bench::PlainSize> sizes_of(bench::Arguments& arguments, DType dtype) {
  bench::PlainSize size;
  std::vector<std::string> shapes;
  std::vector<double> bytes;
  arguments.read("--rows", size.rows);
  arguments.read("--columns", size.columns);
  arguments.read("--shapes", shapes);
  arguments.read("--sweep", bytes);
  BS_CHECK(size.rows > 0 && size.columns > 0, "bench_plain: matrices of {} x {}", size.rows,
           size.columns);
  BS_CHECK(bytes.empty() || (bytes.size() == 2 && bytes[0] >= 16),
           "bench_plain: --sweep takes the least number of bytes, from 16 on, and the most");
  if (!bytes.empty()) return sweep(bytes[0], bytes[1], dtype);
  std::vector<bench::PlainSize> sizes;
  for (const std::string& shape : shapes) sizes.push_back(parse(shape));
  return sizes.empty() ? std::vector{size} : sizes;
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  const std::vector<bench::PlainSize> sizes = sizes_of(arguments, settings.dtype);
  std::vector<std::string> sets = bench::plain_sets();
  std::string only;
  arguments.read("--sets", sets);
  arguments.read("--only", only);
  arguments.finish();
  bench::Record record("plain", settings);
  int wrong = 0;
  for (const std::string& set : sets) {
    for (const bench::PlainSize& size : sizes) {
      wrong += check(set, size, settings);
      measure(set, only, size, settings, record);
    }
  }
  record.write();
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
