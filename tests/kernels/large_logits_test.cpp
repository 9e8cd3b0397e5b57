// Cross entropy of logits that are large beside their distances: lse would be rounded to their
// step.
#include <bs/autograd/loss.h>
#include <bs/autograd/soft_cross_entropy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/loss.h>
#include <bs/kernels/soft_cross_entropy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

struct Row {
  double loss = 0;
  std::vector<double> gradient;
};

/// -sum_j q_j log softmax(x)_j, and its gradient, for weights q of the classes; in more than
/// double, since a naive sum of many doubles is worse than the kernels' own.
Row row_of(const Reference& x, size_t row, const std::vector<double>& q) {
  const size_t n = q.size();
  const double* const at = x.values.data() + row * n;
  const double top = *std::max_element(at, at + n);
  long double sum = 0, total = 0, loss = 0;
  for (size_t j = 0; j < n; ++j) sum += std::exp(at[j] - top), total += q[j];
  Row result;
  for (size_t j = 0; j < n; ++j) {
    loss += q[j] * (top - at[j] + std::log(sum));
    result.gradient.push_back(static_cast<double>(total * std::exp(at[j] - top) / sum - q[j]));
  }
  result.loss = static_cast<double>(loss);
  return result;
}

std::vector<double> smoothed(size_t n, size_t target, double smoothing) {
  std::vector<double> q(n, smoothing / static_cast<double>(n));
  q[target] += 1 - smoothing;
  return q;
}

struct Large {
  int64_t rows, n;
  DType dtype;
  double shift;
  Tensor x = {}, targets = {};
  Reference seen;

  Large(int64_t r, int64_t classes, DType d, double by) : rows(r), n(classes), dtype(d), shift(by) {
    Reference values = random_reference({rows, n}, 7, -6, 0);
    for (double& v : values.values) v = shift + std::round(v);
    x = values.tensor(dtype, test_device());
    seen = Reference::of(x);
    std::vector<int64_t> t;
    for (int64_t i = 0; i < rows; ++i) t.push_back(target(i));
    targets = Tensor::from<int64_t>(t, {rows}).to(test_device());
  }
  int64_t target(int64_t row) const { return row * 7 % n; }
  DType wide() const { return dtype == f64 ? f64 : f32; }

  /// `losses` and `gradient` are those of weights q(row) of the classes.
  template <class Weights>
  void check(const Tensor& losses, const Tensor& gradient, Weights q) const {
    CAPTURE(n);
    CAPTURE(dtype);
    CAPTURE(shift);
    const Reference l = Reference::of(losses), g = Reference::of(gradient);
    const double steps = 32 * epsilon(wide());
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      const std::vector<double> weights = q(row);
      const Row expected = row_of(seen, row, weights);
      CHECK(std::abs(l[row] - expected.loss) <= steps * (1 + expected.loss));
      double worst = 0;
      for (size_t j = 0; j < expected.gradient.size(); ++j) {
        const double exact = expected.gradient[j], p = exact + weights[j];
        const double most = epsilon(dtype) * std::abs(exact) + steps * (1 + p);
        worst = std::max(worst, std::abs(g[row * expected.gradient.size() + j] - exact) / most);
      }
      CHECK(worst <= 1);
    }
  }
};

/// Calls f with logits of both ends of the range of each dtype.
template <class F>
void for_large_logits(F f) {
  for (const int64_t n : {3, 40, 333, 5000})
    for (const double shift : {1e4, -1e4, 1e6, 1e8}) {
      f(Large(4, n, f32, shift));
      f(Large(4, n, f64, shift * 1e8));
      f(Large(4, n, bf16, shift));
    }
}

}  // namespace

TEST_CASE("cross_entropy of large logits keeps their distances") {
  const double log3 = std::log(3.0);
  const Tensor x = full({1, 3}, 1e8, f32, test_device());
  const Tensor first = Tensor::from<int64_t>({0}, {1}).to(test_device());
  CHECK(cross_entropy(x, first).loss.item() == doctest::Approx(log3).epsilon(1e-6));
  for_large_logits([](const Large& of) {
    for (const double smoothing : {0.0, 0.25}) {
      const CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = Reduction::none};
      CrossEntropyResult result = cross_entropy(of.x, of.targets, options);
      const Tensor one = full({of.rows}, 1, of.wide(), test_device());
      of.check(result.loss, cross_entropy_backward(of.x, of.targets, result, one, options),
               [&](size_t row) {
                 const auto target = static_cast<size_t>(of.target(static_cast<int64_t>(row)));
                 return smoothed(static_cast<size_t>(of.n), target, smoothing);
               });
    }
  });
}

TEST_CASE("soft_cross_entropy of large logits keeps their distances") {
  for_large_logits([](const Large& of) {
    const Reference q = random_reference({of.rows, of.n}, 3, 0, 1);
    const Tensor weights = q.tensor(of.dtype, test_device());
    const Reference seen = Reference::of(weights);
    // Of both, sums of n terms are made, in runs.
    const Tensor scale = full({of.rows}, 1, of.wide(), test_device());
    const auto row = [&](size_t r) {
      const auto n = static_cast<size_t>(of.n);
      const auto from = seen.values.begin() + static_cast<std::ptrdiff_t>(r * n);
      return std::vector<double>(from, from + static_cast<std::ptrdiff_t>(n));
    };
    of.check(soft_cross_entropy(of.x, weights), soft_cross_entropy_backward(of.x, weights, scale),
             row);
  });
}

TEST_CASE("weighted_cross_entropy of large logits keeps their distances") {
  for_large_logits([](const Large& of) {
    const Tensor c = random_reference({of.n}, 3, 0.5, 2).tensor(of.dtype, test_device());
    const Reference seen = Reference::of(c);
    const Variable x(of.x, true);
    const Variable losses =
        weighted_cross_entropy(x, of.targets, c, {.reduction = Reduction::none});
    losses.backward(full({of.rows}, 1, losses.data().dtype(), test_device()));
    of.check(losses.data(), x.grad(), [&](size_t row) {
      const auto target = static_cast<size_t>(of.target(static_cast<int64_t>(row)));
      std::vector<double> q(static_cast<size_t>(of.n));
      q[target] = seen[target];
      return q;
    });
  });
}
