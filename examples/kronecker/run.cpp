#include <bs/examples/kronecker/run.h>

#include <bs/examples/kronecker/products.h>
#include <bs/examples/support/temporary_folder.h>
#include <bs/examples/support/training.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/random.h>
#include <bs/lib/file.h>
#include <bs/lib/host_view.h>
#include <bs/lib/json.h>
#include <bs/lib/random.h>
#include <bs/lib/stream.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

namespace bs::example {

namespace {

/// x, upstream gradients, and factors of variance 1 / extent.
struct Problem {
  int64_t rows, width = 1;
  Tensor x, dy;
  std::vector<Tensor> first, second;  ///< of two layers

  explicit Problem(const KroneckerOptions& o) : rows(o.rows()) {
    for (const int64_t p : o.factors()) width *= p;
    manual_seed(0);
    x = randn({rows, width}, o.dtype, o.device);
    dy = randn({rows, width}, o.dtype, o.device);
    for (std::vector<Tensor>* layer : {&first, &second})
      for (const int64_t p : o.factors()) {
        const Tensor w = randn({p, p}, f32, o.device);
        layer->push_back(cast(mul(w, 1 / std::sqrt(static_cast<double>(p))), o.dtype));
      }
  }
};

std::vector<Variable> leaves(const std::vector<Tensor>& tensors) {
  std::vector<Variable> all;
  all.reserve(tensors.size());
  for (const Tensor& t : tensors) all.emplace_back(t, true);
  return all;
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values;
  for_each_value<double>(cast(host_copy(contiguous(t)), f64),
                         [&](double v) { values.push_back(v); });
  return values;
}

double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// PyTorch's allclose with its defaults.
bool all_close(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= 1e-8 + 1e-5 * std::abs(b[i]))) return false;
  return true;
}

/// y, dx and the gradients of all factors of two layers.
std::vector<std::vector<double>> outcome(const Product& product, const Problem& problem) {
  const Variable x(problem.x, true);
  const std::vector<Variable> first = leaves(problem.first), second = leaves(problem.second);
  const Variable y = product.apply(product.apply(x, first, unwatched), second, unwatched);
  y.backward(problem.dy);
  std::vector<std::vector<double>> all = {values_of(y.data()), values_of(x.grad()), {}};
  for (const auto* layer : {&first, &second})
    for (const Variable& w : *layer) {
      const std::vector<double> gradient = values_of(w.grad());
      all[2].insert(all[2].end(), gradient.begin(), gradient.end());
    }
  return all;
}

/// Steps of precision of the dtype.
double epsilon(DType dtype) {
  return dtype == f64 ? 0x1p-52 : dtype == f32 ? 0x1p-23 : dtype == f16 ? 0x1p-10 : 0x1p-7;
}

struct Part {
  std::string name;
  double start, seconds;
};

/// Runs each part from an idle device to an idle device.
class Profile {
 public:
  explicit Profile(Device device) : device_(device), start_(Clock::now()) {}

  template <class Work>
  auto run(const std::string& name, const Work& work) {
    synchronize(device_);
    const Clock::time_point begin = Clock::now();
    auto result = work();
    synchronize(device_);
    parts_.push_back(
        {name, std::chrono::duration<double>(begin - start_).count(), seconds_since(begin)});
    return result;
  }
  void clear() { parts_.clear(); }

  void print() const {
    std::map<std::string, std::pair<double, int>> sums;
    double all = 0;
    for (const Part& part : parts_) {
      sums[part.name].first += part.seconds;
      ++sums[part.name].second;
      all += part.seconds;
    }
    std::vector<std::pair<std::string, std::pair<double, int>>> rows(sums.begin(), sums.end());
    std::ranges::sort(rows, std::greater(), [](const auto& row) { return row.second.first; });
    std::printf("  %-22s %8s %12s %12s %7s\n", "part", "calls", "us in all", "us a call", "share");
    for (const auto& [name, sum] : rows)
      std::printf("  %-22s %8d %12.1f %12.1f %6.1f%%\n", name.c_str(), sum.second, sum.first * 1e6,
                  sum.first * 1e6 / sum.second, 100 * sum.first / all);
  }

  Json trace() const {
    Json::Array events;
    for (const Part& part : parts_)
      events.push_back(Json::Object{{"name", part.name},
                                    {"ph", "X"},
                                    {"pid", 0},
                                    {"tid", 0},
                                    {"ts", part.start * 1e6},
                                    {"dur", part.seconds * 1e6}});
    return Json::Object{{"traceEvents", events}};
  }

 private:
  Device device_;
  Clock::time_point start_;
  std::vector<Part> parts_;
};

double median_seconds(int runs, Device device, const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = -2; i < runs; ++i) {
    synchronize(device);
    const Clock::time_point start = Clock::now();
    work();
    synchronize(device);
    if (i >= 0) times.push_back(seconds_since(start));
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

void check_products(const KroneckerOptions& o) {
  const Problem problem(o);
  std::vector<std::vector<std::vector<double>>> all;
  for (const Product& product : products()) {
    all.push_back(outcome(product, problem));
    std::printf("%-6s |y| %.6g  |dx| %.6g  |dW| %.6g\n", product.name, norm_of(all.back()[0]),
                norm_of(all.back()[1]), norm_of(all.back()[2]));
  }
  constexpr const char* names[] = {"y", "dx", "dW"};
  const double allowed = 64 * epsilon(o.dtype) * static_cast<double>(o.factors().size());
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = a + 1; b < all.size(); ++b)
      for (size_t i = 0; i < 3; ++i) {
        const double off = distance(all[a][i], all[b][i]);
        std::printf("%-6s %-6s %-3s allclose %-5s  L2 error %.2g\n", products()[a].name,
                    products()[b].name, names[i],
                    all_close(all[a][i], all[b][i]) ? "True" : "False", off);
        BS_CHECK(off <= allowed * norm_of(all[b][i]), "{} of {} and {} are {} apart", names[i],
                 products()[a].name, products()[b].name, off);
      }
}

void profile_products(const KroneckerOptions& o) {
  const Problem problem(o);
  Profile profile(o.device);
  const Variable x(problem.x, true);
  const std::vector<Variable> factors = leaves(problem.first);
  for (int run = 0; run < o.wait + o.warm_up + o.active; ++run) {
    if (run == o.wait + o.warm_up) profile.clear();
    for (const Product& product : products()) {
      const Variable y =
          product.apply(x, factors, [&](const char* part, const std::function<Variable()>& work) {
            return profile.run(format("{}: {}", product.name, part), work);
          });
      profile.run(format("{}: backward", product.name), [&] {
        y.backward(problem.dy);
        return true;
      });
    }
  }
  profile.print();
  const std::string trace = profile.trace().dump();
  AtomicFile file(o.trace);
  file.write(trace.data(), trace.size());
  file.commit();
  std::printf("trace     %s\n", o.trace.c_str());
}

void bench_products(const KroneckerOptions& o) {
  const Problem problem(o);
  double sum = 0, weights = 0;
  for (const int64_t p : o.factors()) {
    sum += static_cast<double>(p);
    weights += static_cast<double>(p * p);
  }
  const double elements = static_cast<double>(problem.rows * problem.width);
  const double work = elements * sum;
  std::printf(
      "state size %lld, %.3e multiply-adds, %.2g of them for each element read or written\n",
      static_cast<long long>(problem.width), work, work / (2 * elements + weights));
  const Variable x(problem.x, true);
  const std::vector<Variable> factors = leaves(problem.first);
  std::printf("%-6s %12s %12s   %s\n", "", "forward us", "backward us", "");
  for (const Product& product : products()) {
    const double forward = median_seconds(o.runs, o.device, [&] {
      const NoGrad no_grad;
      product.apply(x, factors, unwatched);
    });
    const Variable y = product.apply(x, factors, unwatched);
    const double backward =
        median_seconds(o.runs, o.device, [&] { y.backward(problem.dy, {.retain_graph = true}); });
    std::printf("%-6s %12.1f %12.1f   %s\n", product.name, forward * 1e6, backward * 1e6,
                product.what);
  }
}

void smoke_products(const KroneckerOptions& options) {
  const TemporaryFolder folder;
  for (const std::vector<int64_t>& extents :
       {std::vector<int64_t>{3, 8, 8}, {2, 2, 3, 4}, {5, 7}, {1, 16, 1, 32}}) {
    KroneckerOptions o = options;
    o.extents = extents;
    o.trace = folder / "trace.json";
    o.runs = 2;
    check_products(o);
    profile_products(o);
    bench_products(o);
    std::ifstream file(o.trace);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const Json trace = Json::parse(text);
    BS_CHECK(!trace.find("traceEvents")->array().empty(), "the trace is empty");
  }
}

}  // namespace bs::example
