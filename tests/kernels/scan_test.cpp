#include <bs/autograd/scan.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/scan.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// dx of rows: the product before each factor, times what the rest of the row makes of it.
Reference cumprod_gradient(const Reference& x, const Reference& dy) {
  Reference dx(x.shape);
  const int64_t rows = x.shape[0], n = x.shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    double after = 0;
    for (int64_t i = n - 1; i >= 0; --i) {
      after = dy.at({r, i}) + (i + 1 < n ? x.at({r, i + 1}) * after : 0);
      dx.at({r, i}) = after;
    }
    double before = 1;
    for (int64_t i = 0; i < n; ++i) {
      dx.at({r, i}) *= before;
      before *= x.at({r, i});
    }
  }
  return dx;
}

/// Rows of factors near one: none, one, two and many zeros.
Reference factors_with_zeros(const Shape& shape) {
  Reference x = random_reference(shape, 3, 0.98, 1.02);
  const int64_t n = shape[1];
  for (int64_t r = 1; r < shape[0]; ++r) {
    x.at({r, r * 7919 % n}) = 0;
    if (r % 3 == 2) x.at({r, r * 104729 % n}) = 0;
    if (r % 5 == 4)
      for (int64_t i = 0; i < n; i += 2) x.at({r, i}) = 0;
  }
  return x;
}

}  // namespace

TEST_CASE("the gradient of cumprod in rows of any length, with zeros") {
  for (const int64_t n : {1, 7, 64, 255, 256, 257, 1000, 4096, 8192, 8200}) {
    const Shape shape = {6, n};
    for (const DType dtype : {f64, f32, bf16}) {
      const Tensor x = factors_with_zeros(shape).tensor(dtype, test_device());
      const Tensor dy = random_reference(shape, 5).tensor(dtype, test_device());
      const Reference expected = cumprod_gradient(Reference::of(x), Reference::of(dy));
      const Tensor dx = cumprod_backward(x, cumprod(x, 1), dy, 1);
      const Reference actual = Reference::of(dx);
      const Reference columns = Reference::of(
          cumprod_backward(x.transpose(0, 1), cumprod(x, 1).transpose(0, 1), dy.transpose(0, 1), 0)
              .transpose(0, 1));
      // Products and sums of a row are off by its length in roundings of f32, at most.
      const double steps = static_cast<double>(n) * epsilon(dtype == f64 ? f64 : f32);
      double size = 1;
      for (const double v : expected.values) size = std::max(size, std::abs(v));
      for (size_t i = 0; i < expected.values.size(); ++i) {
        const double most = epsilon(dtype) * std::abs(expected[i]) + steps * size;
        CHECK(std::abs(actual[i] - expected[i]) <= most);
        CHECK(columns[i] == actual[i]);
      }
      CHECK(dx.dtype() == dtype);
    }
  }
}

TEST_CASE("the gradient of cumprod beside what is not finite") {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t n : {5, 300}) {
    Reference x({4, n}), dy({4, n});
    std::fill(x.values.begin(), x.values.end(), 1.0);
    std::fill(dy.values.begin(), dy.values.end(), 1.0);
    x.at({0, 2}) = nan;  // all of a row before and behind
    x.at({1, 1}) = 0;    // a zero, then NaN: what lies behind the zero is zero
    x.at({1, 3}) = nan;
    x.at({2, 1}) = inf;
    for (int64_t i = 0; i < n; ++i) x.at({3, i}) = 1e30;  // the product overflows at the end
    const Tensor dx =
        cumprod_backward(x.tensor(f32, test_device()), cumprod(x.tensor(f32, test_device()), 1),
                         dy.tensor(f32, test_device()), 1);
    const Reference actual = Reference::of(dx);
    for (int64_t i = 0; i < n; ++i) CHECK(std::isnan(actual.at({0, i})));
    CHECK(std::isnan(actual.at({1, 0})));
    CHECK(std::isnan(actual.at({1, 1})));
    for (int64_t i = 2; i < n; ++i) CHECK(actual.at({1, i}) == 0);
    CHECK(actual.at({2, 0}) == inf);
    CHECK(actual.at({2, 2}) == inf);
    CHECK(actual.at({3, 0}) == inf);
    CHECK(actual.at({3, n - 1}) == inf);
  }
}

TEST_CASE("prod over nothing is 1, with a gradient of no elements") {
  for (const DType dtype : {f32, f64, bf16}) {
    const Variable x(zeros({2, 0, 3}, dtype, test_device()), true);
    for (const Axes& axes : {Axes{}, Axes(Dims{1}), Axes(Dims{0, 1})}) {
      x.zero_grad();
      const Variable y = prod(x, axes);
      CHECK(Reference::of(y.data()).values ==
            std::vector<double>(static_cast<size_t>(y.numel()), 1));
      y.backward(ones(y.shape(), dtype, test_device()));
      REQUIRE(x.grad().defined());
      CHECK(x.grad().shape() == x.shape());
      CHECK(x.grad().dtype() == dtype);
    }
  }
}

// A GPU keeps them in f32, of tiles.
TEST_CASE("running sums and products of many terms do not stall" *
          doctest::skip(!test_device().is_cpu())) {
  const size_t n = 40000;
  for (const size_t columns : {1, 70}) {
    Reference x({static_cast<int64_t>(n), static_cast<int64_t>(columns)});
    Reference sums = x, factors = x, products = x;
    for (size_t i = 0; i < x.values.size(); ++i) {
      const bool is_first = i < columns;
      // In f32, 2^24 and one are 2^24.
      x[i] = is_first ? 0x1p24 : 1;
      sums[i] = x[i] + (is_first ? 0 : sums[i - columns]);
      factors[i] = 1 + 0x1p-20;
      products[i] = factors[i] * (is_first ? 1 : products[i - columns]);
    }
    const Reference sum = Reference::of(cumsum(x.tensor(f32, test_device()), 0));
    const Reference product = Reference::of(cumprod(factors.tensor(f32, test_device()), 0));
    // Both are rounded once, to half a step.
    double worst = 0;
    for (size_t i = 0; i < x.values.size(); ++i) {
      worst = std::max(worst, std::abs(sum[i] / sums[i] - 1));
      worst = std::max(worst, std::abs(product[i] / products[i] - 1));
    }
    CHECK(worst <= 0.51 * epsilon(f32));
  }
}
