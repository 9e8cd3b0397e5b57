#include <bs/kernels/adafactor.h>
#include <bs/tests/kernels/optimizer_reference.h>

using namespace bs;
using namespace bs::test;

namespace {

double root_mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

/// The rule of the paper, tensor by tensor, with PyTorch's choices where it leaves some.
struct NaiveAdafactor {
  using Options = AdafactorOptions;
  using Parameter = AdafactorParameter;
  Options o;
  Shape shape;
  std::vector<double> w, rows, columns;
  size_t matrices = 1, height = 1, width = 1;

  NaiveAdafactor(const Options& options, const Reference& start)
      : o(options), shape(start.shape), w(start.values) {
    if (shape.rank() >= 2) {
      height = static_cast<size_t>(shape[shape.rank() - 2]);
      width = static_cast<size_t>(shape[shape.rank() - 1]);
      matrices = w.size() / (height * width);
      columns.resize(matrices * width);
    }
    rows.resize(shape.rank() >= 2 ? matrices * height : w.size());
  }
  /// Of matrix k, or of the vector: takes g^2 in, returns the estimate.
  std::vector<double> squares(const std::vector<double>& g, double share) {
    std::vector<double> v(w.size());
    if (shape.rank() < 2) {
      for (size_t i = 0; i < w.size(); ++i) v[i] = rows[i] += share * (g[i] * g[i] - rows[i]);
      return v;
    }
    for (size_t k = 0; k < matrices; ++k) {
      double mean = 0;
      for (size_t r = 0; r < height; ++r) {
        double sum = 0;
        for (size_t c = 0; c < width; ++c) sum += std::pow(g[(k * height + r) * width + c], 2);
        double& row = rows[k * height + r];
        row += share * (sum / static_cast<double>(width) - row);
        mean += row / static_cast<double>(height);
      }
      for (size_t c = 0; c < width; ++c) {
        double sum = 0;
        for (size_t r = 0; r < height; ++r) sum += std::pow(g[(k * height + r) * width + c], 2);
        double& column = columns[k * width + c];
        column += share * (sum / static_cast<double>(height) - column);
        for (size_t r = 0; r < height; ++r)
          v[(k * height + r) * width + c] =
              rows[k * height + r] * column / std::max(mean, o.eps1.value());
      }
    }
    return v;
  }
  void step(int t, const std::vector<double>& g) {
    if (w.empty()) return;
    const double rho = std::min(o.learning_rate, 1 / std::sqrt(t));
    const double alpha = std::max(o.eps2, root_mean_square(w)) * rho;
    const std::vector<double> v = squares(g, std::pow(t, o.beta2_decay));
    std::vector<double> u(w.size());
    for (size_t i = 0; i < w.size(); ++i)
      u[i] = g[i] / std::sqrt(std::max(v[i], std::pow(o.eps1.value(), 2)));
    const double length = alpha / std::max(1.0, root_mean_square(u) / o.d);
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = (1 - o.learning_rate * o.weight_decay) * w[i] - length * u[i];
  }
  static constexpr auto run = adafactor;
};

const AdafactorOptions options = {.learning_rate = 0.4, .eps1 = 1e-2, .weight_decay = 0.1};
const AdafactorOptions other = {
    .learning_rate = 0.05, .beta2_decay = -0.5, .eps1 = 0.3, .eps2 = 0.9, .d = 1.5};

}  // namespace

TEST_CASE("adafactor follows the rule") {
  for (const AdafactorOptions& o : {options, other}) {
    check_steps<NaiveAdafactor>(o, f64, false, 1e-12);
    const std::vector<Shape> shapes = {{3, 5}, {1}, {0}, {999}, {33, 64}, {2, 3, 7}, {}};
    check_steps<NaiveAdafactor>(o, f32, false, 1e-5, shapes);
    // Masters lose nothing; what is left is one rounding of the value.
    check_steps<NaiveAdafactor>(o, bf16, true, 1e-5 + epsilon(bf16), shapes);
    check_steps<NaiveAdafactor>(o, f16, false, 10 * epsilon(f16), shapes);
  }
}

TEST_CASE("adafactor of matrices that are tall, wide, many or one row") {
  const std::vector<Shape> shapes = {{3000, 3}, {70, 1000}, {9000}, {1, 3000}, {8, 5, 3, 3}};
  check_steps<NaiveAdafactor>(options, f64, false, 1e-12, shapes);
  check_steps<NaiveAdafactor>(options, f32, false, 1e-5, shapes);
}

TEST_CASE("adafactor clips and skips; numbers from the device are the host's") {
  check_clip<NaiveAdafactor>(options);
  check_clip<NaiveAdafactor>(options, {7, 11});
  check_skip<NaiveAdafactor>(options, f32);
  check_skip<NaiveAdafactor>(options, bf16, {7, 11});
  const Reference start = random_reference({4, 5}, 1);
  const auto step = [&](bool live) {
    auto p = fresh_parameter<AdafactorParameter>(start, f32, options);
    p.gradient = random_reference({4, 5}, 2).tensor(f32, test_device());
    const auto numbers = adafactor_numbers(7, options);
    const Tensor on = Tensor::from<double>({numbers.begin(), numbers.end()}, {5}).to(test_device());
    AdafactorOptions stale = options;
    stale.learning_rate = 5;
    adafactor(std::vector{p}, live ? 1 : 7, live ? stale : options, {}, live ? on : Tensor());
    return std::pair(p.value, p.row_variance);
  };
  CHECK(same_bits(step(true).first, step(false).first));
  CHECK(same_bits(step(true).second, step(false).second));
}

TEST_CASE("adafactor refuses what does not fit") {
  auto p = fresh_parameter<AdafactorParameter>(Reference({2, 3}), f32, options);
  p.gradient = zeros({2, 3}, f32, test_device());
  CHECK(p.row_variance.shape() == Shape{2, 1});
  CHECK(p.column_variance.shape() == Shape{1, 3});
  CHECK(!p.variance.defined());
  const auto run = [&](const AdafactorOptions& o) { adafactor(std::vector{p}, 1, o); };
  CHECK_THROWS_WITH_AS(run({.d = 0.5}), "adafactor: d is 0.5, less than 1", Error);
  CHECK_THROWS_WITH_AS(run({.beta2_decay = 1}), "adafactor: a beta2_decay of 1 is positive", Error);
  CHECK_THROWS_WITH_AS(run({.weight_decay = -1}),
                       doctest::Contains("a decay of -1: none may be negative"), Error);
  p.row_variance = {};
  CHECK_THROWS_WITH_AS(run(options), "adafactor: a parameter [2, 3] has no row_variance", Error);
}
