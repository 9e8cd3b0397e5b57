// A product with a Kronecker product, forward and backward. Work counted: 2 sum(P) FLOP an element
// forward, three times that backward, which computes prefixes again; bytes: x and y once, and
// backward x, dy and dx once.
#include <bs/bench/record.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/kron.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/random.h>

#include <cmath>
#include <cstdio>
#include <sstream>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_kron [options]\n"
    "  --cases ROWS:P:P...,...   rows, then square factors\n"
    "  --tf32 0|1                whether f32 operands may be rounded to TF32\n";

struct Case {
  int64_t rows = 0, width = 1;
  std::vector<int64_t> factors;
};

Case parse(const std::string& text) {
  Case c;
  std::istringstream in(text);
  in >> c.rows;
  int64_t p = 0;
  for (char colon = 0; in >> colon >> p;) c.factors.push_back(p);
  BS_CHECK(c.rows > 0 && !c.factors.empty(), "bench_kron: {} is not ROWS:P:P", text);
  for (const int64_t f : c.factors) c.width *= f;
  return c;
}

Tensor doubles(const Tensor& x) { return cast(contiguous(x).to(Device::cpu()), f64); }

/// Values of variance 1 / p for a factor, so that results are of the size of x.
Tensor normal(const Shape& shape, double deviation, const bench::Settings& s) {
  const Tensor x = randn(shape, f32, s.device);
  return cast(mul(x, deviation), s.dtype);
}

double distance(const Tensor& actual, const Tensor& expected) {
  const Tensor a = doubles(actual), e = doubles(expected);
  double error = 0, size = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    error += std::pow(a.data<double>()[i] - e.data<double>()[i], 2);
    size += std::pow(e.data<double>()[i], 2);
  }
  return std::sqrt(error / size);
}

/// A few rows against the CPU in f64, which the tests hold to naive loops.
void check(const Tensor& x, const Tensor& dy, const std::vector<Tensor>& factors,
           const bench::Settings& s) {
  const int64_t rows = std::min<int64_t>(x.size(0), 3);
  std::vector<Tensor> exact;
  for (const Tensor& f : factors) exact.push_back(doubles(f));
  const auto first = [&](const Tensor& t) { return t.slice(0, 0, rows); };
  const KronResult result = kron_matmul_kept(first(x), factors);
  const KronGrads grads = kron_matmul_backward(first(x), factors, result, first(dy));
  const Tensor in = doubles(first(x)), din = doubles(first(dy));
  const KronResult wanted = kron_matmul_kept(in, exact);
  const KronGrads wanted_grads = kron_matmul_backward(in, exact, wanted, din);
  const double allowed = s.dtype == f64    ? 1e-13
                         : s.dtype == f16  ? .01
                         : s.dtype == bf16 ? .05
                         : tf32_allowed()  ? 3e-3
                                           : 1e-5;
  const auto compare = [&](const char* what, const Tensor& a, const Tensor& b) {
    const double error = distance(a, b);
    BS_CHECK(error <= allowed, "bench_kron: {} is off by {}", what, error);
  };
  compare("y", result.y, wanted.y);
  compare("dx", grads.x, wanted_grads.x);
  for (size_t f = 0; f < factors.size(); ++f)
    compare("a factor's gradient", grads.factors[f], wanted_grads.factors[f]);
}

void run(const Case& c, const bench::Settings& s, bench::Record& record) {
  const Tensor x = normal({c.rows, c.width}, 1, s), dy = normal({c.rows, c.width}, 1, s);
  std::vector<Tensor> factors;
  double sum = 0, weights = 0;
  std::string name;
  for (const int64_t p : c.factors) {
    factors.push_back(normal({p, p}, 1 / std::sqrt(static_cast<double>(p)), s));
    sum += static_cast<double>(p);
    weights += static_cast<double>(p * p);
    name += (name.empty() ? "" : " ") + std::to_string(p);
  }
  check(x, dy, factors, s);
  KronResult result;
  KronGrads grads;
  const auto timings = bench::interleave(
      s.device,
      {[&] { result = kron_matmul_kept(x, factors); },
       [&] { grads = kron_matmul_backward(x, factors, result, dy, {}, {.bias = false}); }},
      s.measure);
  const double elements = static_cast<double>(x.numel());
  const double size = static_cast<double>(size_of(s.dtype));
  const std::string dtype(tf32_allowed() ? "tf32" : to_string(s.dtype));
  const Json::Object cell = {{"rows", c.rows}, {"factors", name}, {"dtype", dtype}};
  record.add({.cell = cell,
              .what = "forward",
              .time = timings[0],
              .flops = 2 * elements * sum,
              .bytes = size * (2 * elements + weights)});
  record.add({.cell = cell,
              .what = "backward",
              .time = timings[1],
              .flops = 6 * elements * sum,
              .bytes = size * (3 * elements + 2 * weights)});
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::vector<std::string> cases = {"32:128:128", "1024:64:64", "1024:16:16:16", "1024:8:8:8:8:8"};
  if (settings.device.is_cuda())
    cases.insert(cases.end(), {"1024:32:32", "256:128:128", "256:16:16:16:16", "16:32:32:32:32"});
  int tf32 = 0;
  arguments.read("--cases", cases);
  arguments.read("--tf32", tf32);
  arguments.finish();
  BS_CHECK(tf32 == 0 || settings.dtype == f32, "bench_kron: --tf32 1 rounds f32, not {}",
           settings.dtype);
  const TF32Guard guard(tf32 != 0);
  bench::Record record("kron", settings);
  for (const std::string& text : cases) run(parse(text), settings, record);
  record.write();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
