#include <bs/kernels/muon.h>
#include <bs/tests/kernels/optimizer_reference.h>
#include <bs/tests/support/sanitized.h>

using namespace bs;
using namespace bs::test;

namespace {

/// A matrix as rows of doubles.
using Rows = std::vector<std::vector<double>>;

Rows product(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Rows turned(const Rows& a) {
  Rows t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
Rows orthogonal(Rows x, const MuonOptions& o) {
  if (x.size() > x[0].size()) return turned(orthogonal(turned(x), o));
  double squares = 0;
  for (const auto& row : x)
    for (const double v : row) squares += v * v;
  for (auto& row : x)
    for (double& v : row) v /= std::max(std::sqrt(squares), o.eps);
  for (int t = 0; t < o.iterations; ++t) {
    const Rows gram = product(x, turned(x)), fourth = product(gram, gram);
    Rows polynomial = gram;
    for (size_t i = 0; i < gram.size(); ++i)
      for (size_t j = 0; j < gram.size(); ++j)
        polynomial[i][j] = (i == j ? o.coefficients[0] : 0) + o.coefficients[1] * gram[i][j] +
                           o.coefficients[2] * fourth[i][j];
    x = product(polynomial, x);
  }
  return x;
}

/// The rule, matrix by matrix.
struct NaiveMuon {
  using Options = MuonOptions;
  using Parameter = MuonParameter;
  Options o;
  size_t height, width;
  std::vector<double> w, m;
  NaiveMuon(const Options& options, const Reference& start)
      : o(options),
        height(static_cast<size_t>(start.shape[0])),
        width(static_cast<size_t>(start.shape[1])),
        w(start.values),
        m(w.size()) {}
  double length() const {
    const double r = static_cast<double>(height), c = static_cast<double>(width);
    if (o.length == MuonLength::match_rms_adamw) return 0.2 * std::sqrt(std::max(r, c));
    return std::sqrt(o.length == MuonLength::original ? std::max(1.0, r / c) : r / c);
  }
  void step(int, const std::vector<double>& g) {
    if (w.empty()) return;
    Rows u(height, std::vector<double>(width));
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = o.momentum * m[i] + (1 - o.momentum) * g[i];
      u[i / width][i % width] = o.nesterov ? (1 - o.momentum) * g[i] + o.momentum * m[i] : m[i];
    }
    u = orthogonal(u, o);
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = (1 - o.learning_rate * o.weight_decay) * w[i] -
             o.learning_rate * length() * u[i / width][i % width];
  }
  static void run(const std::vector<Parameter>& parameters, int, const Options& options,
                  const GradientClip& clip, const Tensor& numbers) {
    muon(parameters, options, clip, numbers);
  }
};

const MuonOptions options = {.learning_rate = 0.01, .products = f32};
const MuonOptions other = {.learning_rate = 0.01,
                           .momentum = 0.5,
                           .nesterov = false,
                           .coefficients = {2, -1.5, 0.5},
                           .iterations = 7,
                           .length = MuonLength::match_rms_adamw,
                           .products = f32};
const std::vector<Shape> all_shapes = {{3, 5},   {5, 3},   {1, 1}, {0, 3},   {1, 9},
                                       {33, 17}, {16, 64}, {3, 5}, {16, 64}, {5, 3}};  // some alike

}  // namespace

TEST_CASE("muon follows the rule") {
  const std::vector<Shape> few = {{33, 17}, {3, 5}, {16, 64}, {3, 5}};
  for (const MuonOptions& o : {options, other}) {
    const std::vector<Shape>& shapes = sanitized ? few : all_shapes;
    check_steps<NaiveMuon>(o, f64, false, 1e-12, shapes);
    check_steps<NaiveMuon>(o, f32, false, 1e-5, shapes);
    // Masters lose nothing; what is left is one rounding of the value.
    check_steps<NaiveMuon>(o, bf16, true, 1e-5 + epsilon(bf16), shapes);
    check_steps<NaiveMuon>(o, f16, false, 10 * epsilon(f16), shapes);
  }
}

TEST_CASE("muon multiplies in bf16 unless asked otherwise, and comes near") {
  MuonOptions o = other;
  o.products = MuonOptions().products;
  CHECK(o.products == bf16);
  // Each of seven iterations rounds values below 1 twice; steps are 1.6 times the rate, and ten.
  check_steps<NaiveMuon>(o, f32, false, 10 * 0.01 * 1.6 * 7 * 2 * epsilon(bf16), all_shapes);
  check_steps<NaiveMuon>(o, f64, false, 1e-12, {{3, 5}});
}

TEST_CASE("newton_schulz brings singular values near one") {
  for (const Shape& shape : {Shape{4, 30}, Shape{30, 4}}) {
    const Tensor g = random_reference(shape, 3).tensor(f64, test_device());
    // Coefficients that converge; Muon's own stay within .7 and 1.2.
    const Tensor u = newton_schulz(g, f64, 30, {1.875, -1.25, 0.375}, 1e-7);
    CHECK(u.shape() == shape);
    Rows x(4, std::vector<double>(30));
    const Reference r = Reference::of(shape[0] == 4 ? u : u.transpose(0, 1));
    for (size_t i = 0; i < r.values.size(); ++i) x[i / 30][i % 30] = r[i];
    const Rows gram = product(x, turned(x));
    for (size_t i = 0; i < 4; ++i)
      for (size_t j = 0; j < 4; ++j) CHECK(std::abs(gram[i][j] - (i == j ? 1 : 0)) < 1e-12);
  }
  const Tensor zero = newton_schulz(zeros({2, 3}, f32, test_device()), bf16, 5, {2, -1.5, 0.5}, 1);
  for (const double v : Reference::of(zero).values) CHECK(v == 0);
}

TEST_CASE("muon clips and skips") {
  check_clip<NaiveMuon>(options, {7, 11});
  check_skip<NaiveMuon>(options, f32, {7, 11});
  check_skip<NaiveMuon>(options, bf16, {7, 11});
}

TEST_CASE("muon refuses what does not fit") {
  auto p = fresh_parameter<MuonParameter>(Reference({2, 3, 4}), f32, options);
  p.gradient = zeros({2, 3, 4}, f32, test_device());
  CHECK_THROWS_WITH_AS(muon(std::vector{p}, options), "muon: a parameter [2, 3, 4] is no matrix",
                       Error);
  CHECK_THROWS_WITH_AS(muon({}, {.momentum = 1}), "muon: a momentum of 1 is not within [0, 1)",
                       Error);
  CHECK_THROWS_WITH_AS(muon({}, {.iterations = -1}), "muon: -1 iterations", Error);
  CHECK_THROWS_WITH_AS(muon({}, {.products = i32}), "muon: products of i32", Error);
  CHECK_THROWS_WITH_AS(newton_schulz(zeros({3}, f32, test_device()), f32, 1, {1, 0, 0}, 1),
                       "newton_schulz: [3] of f32 is no matrix", Error);
  CHECK_THROWS_WITH_AS(newton_schulz(zeros({3, 3}), f32, 1 << 30, {1, 0, 0}, 1),
                       "newton_schulz: 1073741824 iterations", Error);
}
