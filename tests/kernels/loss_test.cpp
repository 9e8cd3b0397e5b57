#include <bs/autograd/loss.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/loss.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t ignored = -100;

/// Targets that name every class in turn, with every fifth row ignored.
std::vector<int64_t> some_targets(int64_t rows, int64_t classes) {
  std::vector<int64_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(r % 5 == 3 ? ignored : r * 7 % classes);
  return targets;
}

Tensor tensor_of(const std::vector<int64_t>& values, const Shape& shape, DType dtype) {
  Reference r(shape);
  for (size_t i = 0; i < values.size(); ++i) r[i] = static_cast<double>(values[i]);
  return r.tensor(dtype, test_device());
}

/// -sum_j q_j log p_j with q the smoothed target and p the softmax, of every row.
Reference losses_of(const Reference& x, const std::vector<int64_t>& targets, double smoothing) {
  const auto n = static_cast<size_t>(x.shape.back());
  Reference losses(x.shape.slice(0, x.shape.rank() - 1));
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == ignored) continue;
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += std::exp(x[row * n + j]);
    for (size_t j = 0; j < n; ++j) {
      double q = smoothing / static_cast<double>(n);
      if (static_cast<size_t>(targets[row]) == j) q += 1 - smoothing;
      losses[row] -= q * (x[row * n + j] - std::log(sum));
    }
  }
  return losses;
}

Reference reduced(const Reference& losses, const std::vector<int64_t>& targets,
                  Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  Reference loss;
  double count = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    loss[0] += losses[row];
    count += targets[row] != ignored;
  }
  if (reduction == Reduction::mean) loss[0] /= count;
  return loss;
}

void check_case(const Shape& shape, const CrossEntropyOptions& options, DType index) {
  CAPTURE(to_string(shape));
  CAPTURE(to_string(options.reduction));
  CAPTURE(options.label_smoothing);
  const Shape rows = shape.slice(0, shape.rank() - 1);
  const auto targets = some_targets(rows.product(), shape.back());
  const Tensor t = tensor_of(targets, rows, index);
  // Losses are f32 for 16-bit logits too, so that they are no worse than those of f32 but for the
  // gradient, which has the logits' dtype.
  check_op({.name = "cross_entropy",
            .inputs = {shape},
            .op = [=](const Variables& v) { return cross_entropy(v[0], t, options); },
            .reference =
                [=](const References& in) {
                  return reduced(losses_of(in[0], targets, options.label_smoothing), targets,
                                 options.reduction);
                },
            .low = -4,
            .high = 4});
}

}  // namespace

TEST_CASE("cross_entropy") {
  for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    for (double smoothing : {0.0, 0.1, 1.0}) {
      const CrossEntropyOptions options = {.label_smoothing = smoothing, .reduction = reduction};
      check_case({7, 5}, options, i64);
      check_case({2, 3, 33}, options, i32);
    }
  check_case({40, 256}, {}, i64);
  check_case({3, 5003}, {.label_smoothing = 0.1}, i64);
  check_case({1, 1}, {}, i64);
  check_case({2, 65}, {}, i32);
  check_case({9}, {}, i64);
  check_case({0, 4}, {.reduction = Reduction::sum}, i64);
  check_case({0, 4}, {.reduction = Reduction::none}, i64);
}

TEST_CASE("cross_entropy of large logits neither overflows nor cancels") {
  const Tensor x =
      Reference::of(Tensor::from<double>({1e4, 1e4 - 2, -1e4}, {1, 3})).tensor(f32, test_device());
  const auto loss = [&](int64_t target) {
    return cross_entropy(x, tensor_of({target}, {1}, i64)).loss.item();
  };
  const double rest = std::log1p(std::exp(-2.0));
  CHECK(std::abs(loss(0) - rest) <= 1e4 * epsilon(f32));
  CHECK(std::abs(loss(1) - rest - 2) <= 1e4 * epsilon(f32));
  CHECK(std::abs(loss(2) - rest - 2e4) <= 2e4 * epsilon(f32));
}

TEST_CASE("cross_entropy gives a class of no probability an infinite loss") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x =
      Reference::of(Tensor::from<double>({0, -infinity, 1}, {1, 3})).tensor(f32, test_device());
  CHECK(cross_entropy(x, tensor_of({1}, {1}, i64)).loss.item() == infinity);
  CHECK(cross_entropy(x, tensor_of({2}, {1}, i64)).loss.item() ==
        doctest::Approx(std::log1p(std::exp(-1.0))));
}

TEST_CASE("the mean of no rows is NaN, and its gradient zero") {
  const Variable x(random_reference({3, 4}, 1).tensor(f32, test_device()), true);
  const Tensor t = tensor_of({ignored, ignored, ignored}, {3}, i64);
  const Variable loss = cross_entropy(x, t);
  CHECK(std::isnan(loss.data().item()));
  loss.backward();
  for (double v : Reference::of(x.grad()).values) CHECK(v == 0);
  CHECK(cross_entropy(x.data(), t, {.reduction = Reduction::sum}).loss.item() == 0);
}

TEST_CASE("cross_entropy keeps two numbers a row") {
  const Tensor x = random_reference({6, 4}, 1).tensor(bf16, test_device());
  const CrossEntropyResult r = cross_entropy(x, tensor_of(some_targets(6, 4), {6}, i64));
  CHECK(r.lse.shape() == Shape{6});
  CHECK(r.lse.dtype() == f32);
  CHECK(r.lse_rest.shape() == Shape{6});
  CHECK(r.lse_rest.dtype() == f32);
  CHECK(r.loss.dtype() == f32);
}

TEST_CASE("cross_entropy takes views, and another ignore_index") {
  const Reference x = random_reference({4, 6}, 1);
  const Tensor turned = x.tensor(f64, test_device()).transpose(0, 1);
  const Tensor t = tensor_of({0, 1, 2, 3, 2, 2}, {6}, i64);
  const double loss = cross_entropy(turned, t, {.ignore_index = 2}).loss.item();
  Reference dense({6, 4});
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 4; ++j) dense.at({i, j}) = x.at({j, i});
  const std::vector<int64_t> targets = {0, 1, ignored, 3, ignored, ignored};
  const double expected = reduced(losses_of(dense, targets, 0), targets, Reduction::mean)[0];
  CHECK(std::abs(loss - expected) <= 1e-14);
}

TEST_CASE("cross_entropy and targets outside the classes") {
  const Variable x(random_reference({3, 4}, 1).tensor(f32, test_device()), true);
  const Tensor t = tensor_of({1, 4, -1}, {3}, i64);
  if (test_device().is_cpu()) {
    CHECK_THROWS_WITH_AS(
        cross_entropy(x.data(), t),
        "cross_entropy: target 4 of row 1 is outside [0, 4) and is not ignore_index -100", Error);
    return;
  }
  // A GPU is not waited for: such rows become NaN instead.
  const Variable losses = cross_entropy(x, t, {.reduction = Reduction::none});
  losses.backward(Reference::of(losses.data()).tensor(f32, test_device()));
  const Reference y = Reference::of(losses.data());
  const Reference g = Reference::of(x.grad());
  for (size_t row = 0; row < 3; ++row) CHECK(std::isnan(y[row]) == (row > 0));
  for (size_t i = 0; i < 12; ++i) CHECK(std::isnan(g[i]) == (i >= 4));
}

TEST_CASE("cross_entropy refuses what does not fit") {
  const Tensor x = Tensor::empty({2, 3}, f32);
  const Tensor t = Tensor::from<int64_t>({0, 1});
  CHECK_THROWS_WITH_AS(cross_entropy(x, Tensor::from<int64_t>({0})),
                       "cross_entropy: targets [1] for logits [2, 3]", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, Tensor::from<float>({0, 1})),
                       "cross_entropy: targets of dtype f32, expected i64 or i32", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(Tensor::empty({2, 0}, f32), t),
                       "cross_entropy: logits [2, 0] have no classes", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(Tensor::empty({2, 3}, i32), t),
                       "cross_entropy: logits of dtype i32", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, t, {.label_smoothing = 1.5}),
                       "cross_entropy: label_smoothing 1.5 is not within [0, 1]", Error);
}

TEST_CASE("cross_entropy_backward refuses another call's result") {
  const Tensor x = zeros({2, 3});
  const Tensor t = Tensor::from<int64_t>({0, 1});
  const Tensor one = full({}, 1);
  CrossEntropyResult result = cross_entropy(x, t);
  CHECK_THROWS_WITH_AS(
      cross_entropy_backward(x, t, result, full({2}, 1), {.reduction = Reduction::none}),
      "cross_entropy_backward: loss [] and weight [] are not those of reduction none", Error);
  result.lse = full({1}, 1).expand({2});
  CHECK_THROWS_WITH_AS(cross_entropy_backward(x, t, result, one),
                       "cross_entropy_backward: lse [2] for targets [2]", Error);
  result = cross_entropy(x, t);
  result.lse_rest = full({1}, 1).expand({2});
  CHECK_THROWS_WITH_AS(cross_entropy_backward(x, t, result, one),
                       "cross_entropy_backward: lse_rest [2] for targets [2]", Error);
  result = cross_entropy(x, t, {.reduction = Reduction::sum});
  CHECK_THROWS_AS(cross_entropy_backward(x, t, result, one), Error);
}
