// The rate of sdd, dsd and dds in every transposition, beside that of the dense product of the same
// size on the same device. Useful work only: 2 nnz block^2 n FLOP.
#include <bs/bench/measure.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/lib/file.h>
#include <bs/lib/json.h>
#include <bs/lib/patterns.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

using namespace bs;

namespace {

struct Options {
  Device device;
  DType dtype = f32;
  int64_t size = 2048;
  std::vector<int> blocks = {16, 32, 64, 128};
  std::vector<double> densities = {0.1, 0.25};
  bench::MeasureOptions measure;
  std::string json;
};

constexpr const char* help =
    "bench_block_sparse_matmul [options]\n"
    "  --device cpu|cuda[:i]   default cpu\n"
    "  --dtype f64|f32|f16|bf16\n"
    "  --size N                rows, columns and depth, default 2048\n"
    "  --blocks 16,32,...      --densities 0.1,0.25,...\n"
    "  --seconds S             of measuring each cell, default 0.3\n"
    "  --json FILE             writes the table\n";

template <class T>
std::vector<T> numbers(const std::string& list) {
  std::vector<T> out;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');)
    out.push_back(static_cast<T>(std::stod(item)));
  return out;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help") {
      std::fputs(help, stdout);
      std::exit(0);
    }
    BS_CHECK(i + 1 < argc, "bench: {} needs a value", name);
    const std::string value = argv[++i];
    if (name == "--device") {
      o.device = Device::parse(value);
    } else if (name == "--dtype") {
      o.dtype = parse_dtype(value);
    } else if (name == "--size") {
      o.size = std::stoll(value);
    } else if (name == "--blocks") {
      o.blocks = numbers<int>(value);
    } else if (name == "--densities") {
      o.densities = numbers<double>(value);
    } else if (name == "--seconds") {
      o.measure.seconds = std::stod(value);
    } else if (name == "--json") {
      o.json = value;
    } else {
      BS_THROW(Error, "bench: unknown option {}; see --help", name);
    }
  }
  return o;
}

/// The elements of a matrix on the host, row by row.
std::vector<double> host(const Tensor& x) {
  const Tensor t = x.to(Device::cpu());
  std::vector<double> out(static_cast<size_t>(t.numel()));
  visit_floating("bench", t.dtype(), [&]<class T>(Type<T>) {
    const T* from = t.data<T>();
    for (double& v : out) v = static_cast<double>(*from++);
  });
  return out;
}

double epsilon(DType dtype) {
  return dtype == f64 ? 0x1p-52 : dtype == f32 ? 0x1p-23 : dtype == f16 ? 0x1p-10 : 0x1p-7;
}

/// Compares entries of c = op(a) op(b), all square and dense here, with sums in double.
void check(const std::string& what, const Tensor& a, const Tensor& b, const Tensor& c, Transpose t,
           const Layout* kept) {
  const std::vector<double> x = host(a), y = host(b), z = host(c);
  const auto n = static_cast<size_t>(c.size(0));
  const auto block = kept ? static_cast<size_t>(kept->block()) : 1;
  const double summed = 0.5 * epsilon(c.dtype() == f64 ? f64 : f32);
  for (size_t sample = 0; sample < 500; ++sample) {
    const size_t i = sample * 7919 % n, j = sample * 104729 % n;
    if (kept && !kept->contains(0, static_cast<int>(i / block), static_cast<int>(j / block)))
      continue;
    double sum = 0, size = 0;
    for (size_t k = 0; k < n; ++k) {
      const double term = x[t.a ? k * n + i : i * n + k] * y[t.b ? j * n + k : k * n + j];
      sum += term;
      size += std::abs(term);
    }
    const double error = std::abs(z[i * n + j] - sum);
    // Of sums of n rounded terms, by Higham and Mary 2019; then the result is rounded.
    const double bound = std::sqrt(static_cast<double>(n)) * summed * size;
    BS_CHECK(error <= bound + epsilon(c.dtype()) * std::abs(sum),
             "bench: {} is wrong at ({}, {}): {}, not {}", what, static_cast<int64_t>(i),
             static_cast<int64_t>(j), z[i * n + j], sum);
  }
}

class Table {
 public:
  explicit Table(const Options& o) : options_(o) {
    const Tensor a = randn({o.size, o.size}, o.dtype, o.device);
    const Tensor b = randn({o.size, o.size}, o.dtype, o.device);
    const double flops = 2 * std::pow(static_cast<double>(o.size), 3);
    dense_ = flops / bench::measure(
                         o.device, [&] { matmul(a, b); }, o.measure)
                         .median;
    std::printf("%lld^3, %s on %s; dense %.1f GFLOP/s\n\n", static_cast<long long>(o.size),
                to_string(o.dtype).c_str(), to_string(o.device).c_str(), 1e-9 * dense_);
    std::puts("block density  product        ms (quartiles)       GFLOP/s  of dense");
  }

  void add(const Layout& layout, const std::string& product, const std::function<void()>& work) {
    const bench::Timing time = bench::measure(options_.device, work, options_.measure);
    const double rate = layout.flops(options_.size) / time.median;
    std::printf("%5d %7.2f  %-7s %9.3f (%.3f .. %.3f) %11.1f %9.2f\n", layout.block(),
                layout.density(), product.c_str(), 1e3 * time.median, 1e3 * time.low,
                1e3 * time.high, 1e-9 * rate, rate / dense_);
    std::fflush(stdout);
    rows_.push_back(Json::Object{{"block", layout.block()},
                                 {"density", layout.density()},
                                 {"product", product},
                                 {"seconds", time.median},
                                 {"low", time.low},
                                 {"high", time.high},
                                 {"flops_per_second", rate}});
  }

  void write() const {
    if (options_.json.empty()) return;
    const Json all(Json::Object{{"benchmark", "block_sparse_matmul"},
                                {"device", to_string(options_.device)},
                                {"dtype", to_string(options_.dtype)},
                                {"size", options_.size},
                                {"dense_flops_per_second", dense_},
                                {"rows", rows_}});
    const std::string text = all.dump() + "\n";
    AtomicFile file(options_.json);
    file.write(text.data(), text.size());
    file.commit();
  }

 private:
  const Options& options_;
  double dense_ = 0;
  Json::Array rows_;
};

void run(const Options& o, const LayoutPtr& layout, Table& table) {
  const Tensor a = randn({o.size, o.size}, o.dtype, o.device);
  const Tensor b = randn({o.size, o.size}, o.dtype, o.device);
  const SparseTensor s = to_sparse(a, layout);
  const Tensor dense = to_dense(s);
  for (Transpose t :
       {Transpose{}, Transpose{.b = true}, Transpose{.a = true}, Transpose{.a = true, .b = true}}) {
    const std::string letters = std::string(t.a ? " t" : " n") + (t.b ? "t" : "n");
    check("sdd" + letters, a, b, to_dense(sdd(a, b, layout, t)), t, layout.get());
    table.add(*layout, "sdd" + letters, [&] { sdd(a, b, layout, t); });
    check("dsd" + letters, dense, b, dsd(s, b, t), t, nullptr);
    table.add(*layout, "dsd" + letters, [&] { dsd(s, b, t); });
    check("dds" + letters, b, dense, dds(b, s, t), t, nullptr);
    table.add(*layout, "dds" + letters, [&] { dds(b, s, t); });
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
  Table table(o);
  for (int block : o.blocks)
    for (double density : o.densities) {
      const int blocks = static_cast<int>(o.size / block);
      run(o, patterns::random({.rows = blocks, .block = block}, {.density = density}), table);
    }
  table.write();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
