#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/soft_cross_entropy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {
Tensor rows_of_three(const std::vector<float>& values) {
  return Tensor::from<float>(values, {static_cast<int64_t>(values.size()) / 3, 3})
      .to(test_device());
}
}  // namespace

TEST_CASE("soft_cross_entropy of rows of any length and of both dtypes of weights") {
  for (const int64_t n : {1, 5, 32, 333, 1000, 4096, 32008}) {
    for (const auto& [dtype, weight_dtype] :
         {std::pair{f64, f64}, {f32, f32}, {bf16, bf16}, {bf16, f32}, {f16, f16}, {f32, f16}}) {
      const Shape shape = {5, n};
      Reference x = random_reference(shape, 3, -4, 4), w = random_reference(shape, 4, 0, 1);
      for (double& v : w.values) v = v < 0.5 ? 0 : v;
      const Tensor logits = x.tensor(dtype, test_device());
      const Tensor weights = w.tensor(weight_dtype, test_device());
      const Reference slope = random_reference({5}, 5);
      x = Reference::of(logits);
      w = Reference::of(weights);
      const Tensor loss = soft_cross_entropy(logits, weights);
      const Tensor d = slope.tensor(dtype == f64 ? f64 : f32, test_device());
      const Tensor dx = soft_cross_entropy_backward(logits, weights, d);
      const Reference losses = Reference::of(loss), dlogits = Reference::of(dx);
      const double roundings = 64 * epsilon(dtype == f64 ? f64 : f32);
      for (int64_t r = 0; r < 5; ++r) {
        double sum = 0, total = 0, expected = 0;
        for (int64_t j = 0; j < n; ++j) sum += std::exp(x.at({r, j}));
        for (int64_t j = 0; j < n; ++j) {
          total += w.at({r, j});
          expected += w.at({r, j}) * (std::log(sum) - x.at({r, j}));
        }
        const auto row = static_cast<size_t>(r);
        CHECK(std::abs(losses[row] - expected) <= roundings * (1 + expected));
        for (int64_t j = 0; j < n; ++j) {
          const double p = std::exp(x.at({r, j})) / sum * total;
          const double exact = slope[row] * (p - w.at({r, j}));
          const double most = epsilon(dtype) * std::abs(exact) + roundings * (1 + p);
          CHECK(std::abs(dlogits.at({r, j}) - exact) <= most);
        }
      }
      CHECK(loss.dtype() == (dtype == f64 ? f64 : f32));
      CHECK(dx.dtype() == dtype);
    }
  }
}

TEST_CASE("soft_cross_entropy beside large logits and what is not finite") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = rows_of_three({-10000, 0, 1,   0, 10000, 0,    0, inf, 0,   -inf, -inf,
                                  -inf,   0, nan, 0, -inf,  -inf, 2, 0,   inf, 0});
  const Tensor w =
      rows_of_three({0, 0.5, 0.5, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0});
  const Reference loss = Reference::of(soft_cross_entropy(x, w));
  CHECK(loss[0] == doctest::Approx(std::log(1 + std::exp(1.0)) - 0.5));  // far below one: no matter
  CHECK(loss[1] == 10000);
  CHECK(std::isnan(loss[2]));  // an infinite logit
  CHECK(std::isnan(loss[3]));  // nothing but -infinity
  CHECK(std::isnan(loss[4]));
  CHECK(loss[5] == inf);  // a weight where there is no probability
  CHECK(loss[6] == 0);    // no weight at all
  const Reference dx =
      Reference::of(soft_cross_entropy_backward(x, w, full({7}, 1, f32, test_device())));
  CHECK(dx.at({1, 0}) == -1);
  CHECK(dx.at({1, 1}) == 1);
  for (const int64_t row : {2, 3, 4}) CHECK(std::isnan(dx.at({row, 1})));
  CHECK(soft_cross_entropy(zeros({0, 3}, f32, test_device()), zeros({0, 3}, f32, test_device()))
            .shape() == Shape{0});
}

TEST_CASE("target_weights of many classes, smoothed, weighted and ignored") {
  const std::vector<int64_t> targets = {2, -100, 0, 7};
  const Tensor t = Tensor::from<int64_t>(targets, {4}).to(test_device());
  for (const int64_t classes : {8, 9, 1000, 4096, 10000})
    for (const DType dtype : {f64, f32, f16, bf16})
      for (const double s : {0.0, 0.5}) {
        const Reference table = random_reference({classes}, 3, 0.5, 2);
        const Tensor of_classes = table.tensor(dtype, test_device());
        const Reference c = Reference::of(of_classes);
        const Reference y =
            Reference::of(target_weights(t, classes, of_classes, {.label_smoothing = s}, dtype));
        for (int64_t r = 0; r < 4; ++r)
          for (int64_t j = 0; j < classes; ++j) {
            const int64_t target = targets[static_cast<size_t>(r)];
            double expected = 0;
            if (target >= 0)
              expected = c[static_cast<size_t>(j)] * s / static_cast<double>(classes);
            if (j == target) expected += c[static_cast<size_t>(j)] * (1 - s);
            // Twice rounded on the way; f16 has shares below its normal numbers.
            CHECK(std::abs(y.at({r, j}) - expected) <= 2 * epsilon(dtype) * expected + 0x1p-24);
          }
      }
}

TEST_CASE("target_weights of classes that weigh alike") {
  for (const DType number : {i64, i32})
    for (const int64_t classes : {1, 3, 8, 100, 4096, 5003, 10000})
      for (const DType dtype : {f64, f32, f16, bf16})
        for (const double s : {0.0, 0.25}) {
          const int64_t rows = 300;
          const CrossEntropyOptions options{.ignore_index = classes / 2, .label_smoothing = s};
          Reference targets({rows});
          for (int64_t r = 0; r < rows; ++r)
            targets.at({r}) = static_cast<double>(r * 977 % classes);
          const Tensor t = targets.tensor(number, test_device());
          const Tensor y = target_weights(t, classes, {}, options, dtype);
          // Ones weigh the same, by another way.
          const Tensor ones_of_classes = ones({classes}, dtype, test_device());
          const Tensor same = target_weights(t, classes, ones_of_classes, options, dtype);
          CHECK(y.dtype() == dtype);
          const Reference of_y = Reference::of(y);
          REQUIRE_MESSAGE(of_y.values == Reference::of(same).values, to_string(dtype));
          double worst = 0;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < classes; ++j) {
              const auto target = static_cast<int64_t>(targets.at({r}));
              const double share = s / static_cast<double>(classes);
              const double right = target == options.ignore_index ? 0
                                   : target == j                  ? 1 - s + share
                                                                  : share;
              worst = std::max(worst, std::abs(of_y.at({r, j}) - right));
            }
          CHECK(worst <= (dtype == f64   ? 0x1p-52
                          : dtype == f32 ? 0x1p-23
                          : dtype == f16 ? 0x1p-10
                                         : 0x1p-8));
        }
}

TEST_CASE("target_weights with an ignore_index whose lower half is a class") {
  using Doubles = std::vector<double>;
  const Tensor of_classes = Tensor::from<float>({2, 3}).to(test_device());
  for (const DType number : {i64, i32})
    for (const int64_t ignored :
         {std::numeric_limits<int64_t>::min(), int64_t{1} << 32, (int64_t{1} << 32) + 1}) {
      const Tensor t = cast(Tensor::from<int32_t>({0, 1}).to(test_device()), number);
      const CrossEntropyOptions options{.ignore_index = ignored};
      CHECK(Reference::of(target_weights(t, 2, of_classes, options, f32)).values ==
            Doubles{2, 0, 0, 3});
      CHECK(Reference::of(target_weights(t, 2, {}, options, f32)).values == Doubles{1, 0, 0, 1});
      CHECK(target_weight_sum(t, 2, of_classes, options, f32).item() == 5);
    }
}

TEST_CASE("target_weights beside a class whose weight is not finite") {
  const double infinity = std::numeric_limits<double>::infinity();
  Reference table({3});
  table.values = {1, infinity, 1};
  const Tensor t = Tensor::from<int64_t>({1, 0}).to(test_device());
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor of_classes = table.tensor(dtype, test_device());
    CHECK(Reference::of(target_weights(t, 3, of_classes, {}, dtype)).values ==
          std::vector<double>{0, infinity, 0, 1, 0, 0});
  }
}

TEST_CASE("target_weights of targets that are no classes") {
  const Tensor t = Tensor::from<int64_t>({1, 3, -1, -100}).to(test_device());
  const CrossEntropyOptions options{.label_smoothing = 0.5};
  const Tensor of_classes = Tensor::from<float>({1, 2, 3}).to(test_device());
  if (test_device().is_cuda()) {
    for (const double s : {0.0, 0.5}) {
      const Reference y =
          Reference::of(target_weights(t, 3, of_classes, {.label_smoothing = s}, f32));
      for (const int64_t j : {0, 1, 2}) {
        CHECK(y.at({0, j}) ==
              doctest::Approx((j == 1 ? 2 * (1 - s) : 0) + static_cast<double>(j + 1) * s / 3));
        CHECK(std::isnan(y.at({1, j})));
        CHECK(std::isnan(y.at({2, j})));
        CHECK(y.at({3, j}) == 0);
      }
    }
    const Reference y = Reference::of(target_weights(t, 3, {}, options, f32));
    CHECK(y.at({0, 1}) == doctest::Approx(0.5 + 0.5 / 3));
    for (const int64_t row : {1, 2})
      for (const int64_t j : {0, 1, 2}) CHECK(std::isnan(y.at({row, j})));
    for (const int64_t j : {0, 1, 2}) CHECK(y.at({3, j}) == 0);
  } else {
    CHECK_THROWS_WITH_AS(
        target_weights(t, 3, {}, options, f32),
        "cross_entropy: target 3 of row 1 is outside [0, 3) and is not ignore_index -100", Error);
  }
  CHECK_THROWS_WITH_AS(target_weights(zeros({2}, f32), 3, {}, options, f32),
                       "cross_entropy: dtype f32 is not supported; expected i64 or i32", Error);
  CHECK(target_weights(zeros({0}, i64, test_device()), 3, {}, {}, f32).shape() == Shape{0, 3});
}
