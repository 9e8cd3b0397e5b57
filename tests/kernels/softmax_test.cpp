#include <bs/autograd/softmax.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/softmax.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// Softmax or its logarithm over `axis`, straight from the definition.
Reference softmax_of(const Reference& x, int axis, bool logarithm) {
  Reference y = x;
  const auto n = static_cast<size_t>(x.shape[axis]);
  const auto inner = static_cast<size_t>(x.shape.slice(axis + 1, x.shape.rank()).product());
  const auto outer = static_cast<size_t>(x.shape.slice(0, axis).product());
  for (size_t o = 0; o < outer; ++o)
    for (size_t i = 0; i < inner; ++i) {
      long double terms = 0;  // long, since a naive sum of many doubles is worse than the kernels'
      for (size_t j = 0; j < n; ++j) terms += std::exp(x[(o * n + j) * inner + i]);
      const auto sum = static_cast<double>(terms);
      for (size_t j = 0; j < n; ++j) {
        double& v = y[(o * n + j) * inner + i];
        v = logarithm ? v - std::log(sum) : std::exp(v) / sum;
      }
    }
  return y;
}

void check_axis(const Shape& shape, int axis) {
  CAPTURE(to_string(shape));
  CAPTURE(axis);
  const int front = axis < 0 ? axis + shape.rank() : axis;
  check_op({.name = "softmax",
            .inputs = {shape},
            .op = [=](const Variables& v) { return softmax(v[0], axis); },
            .reference = [=](const References& in) { return softmax_of(in[0], front, false); }});
  check_op({.name = "log_softmax",
            .inputs = {shape},
            .op = [=](const Variables& v) { return log_softmax(v[0], axis); },
            .reference = [=](const References& in) { return softmax_of(in[0], front, true); }});
}

/// Both softmaxes of rows, and their gradients, of the results that there are.
void check_rows(const Shape& shape, DType dtype, double bound) {
  CAPTURE(to_string(shape));
  CAPTURE(to_string(dtype));
  const Tensor x = random_reference(shape, 1).tensor(dtype, test_device());
  const Tensor dy = random_reference(shape, 2).tensor(dtype, test_device());
  const Tensor y = softmax(x), log_y = log_softmax(x);
  const Reference given = Reference::of(dy), of_y = Reference::of(y), of_log = Reference::of(log_y);
  const Reference expected = softmax_of(Reference::of(x), 1, false);
  const Reference expected_log = softmax_of(Reference::of(x), 1, true);
  const Reference dx = Reference::of(softmax_backward(y, dy));
  const Reference dx_of_log = Reference::of(log_softmax_backward(log_y, dy));
  double worst = 0;
  const auto compare = [&](double value, double right) {
    worst = std::max(worst, std::abs(value - right) / (1 + std::abs(right)));
  };
  const auto n = static_cast<size_t>(shape[1]);
  for (size_t first = 0; first < given.values.size(); first += n) {
    double inner = 0, sum = 0;
    for (size_t i = first; i < first + n; ++i) {
      inner += of_y[i] * given[i];
      sum += given[i];
    }
    for (size_t i = first; i < first + n; ++i) {
      compare(of_y[i], expected[i]);
      compare(of_log[i], expected_log[i]);
      compare(dx[i], of_y[i] * (given[i] - inner));
      compare(dx_of_log[i], given[i] - std::exp(of_log[i]) * sum);
    }
  }
  CHECK(worst <= bound);
}

}  // namespace

TEST_CASE("softmax and log_softmax") {
  for (const Shape& shape : {Shape{3, 5}, Shape{1, 1}, Shape{2, 3, 130}, Shape{0, 4}, Shape{4, 0},
                             Shape{7, 1025}, Shape{70, 64}, Shape{2, 8200}, Shape{1, 20001}})
    check_axis(shape, -1);
}

TEST_CASE("softmax of many short rows") {
  for (const Shape& shape :
       {Shape{140001, 1}, Shape{70003, 3}, Shape{40001, 16}, Shape{20001, 32}, Shape{9001, 100},
        Shape{5001, 129}, Shape{2001, 333}, Shape{2001, 384}, Shape{2001, 385}})
    for (const auto& [dtype, bound] :
         {std::pair{f64, 1e-14}, {f32, 1e-6}, {f16, 0x1p-10}, {bf16, 0x1p-7}})
      check_rows(shape, dtype, bound);
  // Of three vectors, so that a lane in four has none.
  check_rows({20001, 6}, f64, 1e-14);
  check_rows({20001, 8}, f64, 1e-14);
  check_rows({20001, 12}, f32, 1e-6);
  check_rows({20001, 24}, f16, 0x1p-10);
  check_rows({20001, 24}, bf16, 0x1p-7);
}

TEST_CASE("softmax of few rows that are long") {
  // f64 has 8 decimals more than what a sum of 2e5 terms loses.
  for (const Shape& shape : {Shape{1, 200001}, Shape{2, 131072}, Shape{41, 33000}, Shape{3, 65544}})
    for (const auto& [dtype, bound] :
         {std::pair{f64, 1e-12}, {f32, 4e-6}, {f16, 0x1p-9}, {bf16, 0x1p-6}})
      check_rows(shape, dtype, bound);
  check_rows({1, 300001}, f32, 4e-6);   // more parts than a block adds up at once
  check_rows({200, 33000}, f32, 4e-6);  // a thread's share of a part is several vectors
}

TEST_CASE("softmax of long rows that begin at no vector") {
  const Shape shape{2, 131072};
  for (const auto& [type, within] : {std::pair{f64, 1e-12}, {f32, 4e-6}, {bf16, 0x1p-6}}) {
    const DType dtype = type;
    const double bound = within;
    CAPTURE(to_string(dtype));
    const auto later = [&](const Tensor& x) {
      const Tensor longer = Tensor::empty({x.numel() + 1}, x.dtype(), x.device());
      const Tensor y = longer.slice(0, 1, x.numel() + 1).view(shape);
      copy(x, y);
      return y;
    };
    const auto compare = [=](const Tensor& found, const Tensor& expected) {
      check_close("rows", Reference::of(found), Reference::of(expected), bound);
    };
    const Tensor x = random_reference(shape, 1).tensor(dtype, test_device());
    const Tensor dy = random_reference(shape, 2).tensor(dtype, test_device());
    const Tensor y = softmax(x), log_y = log_softmax(x);
    compare(softmax(later(x)), y);
    compare(log_softmax(later(x)), log_y);
    for (const Tensor& given : {dy, later(dy)}) {
      compare(softmax_backward(later(y), given), softmax_backward(y, dy));
      compare(softmax_backward(y, given), softmax_backward(y, dy));
      compare(log_softmax_backward(log_y, given), log_softmax_backward(log_y, dy));
    }
  }
}

TEST_CASE("softmax of long rows with parts that are not finite") {
  const double infinity = std::numeric_limits<double>::infinity();
  constexpr int64_t n = 100000;
  Reference x({4, n});
  for (size_t i = 0; i < n; ++i) {
    x[i] = i < n / 2 ? -infinity : 1;      // half of the row is hidden
    x[n + i] = -infinity;                  // all of it
    x[2 * n + i] = i == 7 ? infinity : 0;  // has no softmax
    x[3 * n + i] = i == n - 1 ? std::nan("") : i < n / 2 ? -infinity : 0;
  }
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(to_string(dtype));
    const Tensor t = x.tensor(dtype, test_device());
    const Tensor of_t = softmax(t), dy = random_reference({4, n}, 3).tensor(dtype, test_device());
    const Reference dx = Reference::of(softmax_backward(of_t, dy));
    const Reference y = Reference::of(of_t), log_y = Reference::of(log_softmax(t));
    for (size_t i = 0; i < dx.values.size(); ++i)
      if (std::isnan(dx[i]) != (i >= n)) FAIL_CHECK(i, " has the gradient ", dx[i]);
    CHECK(y[0] == 0);
    CHECK(log_y[0] == -infinity);
    CHECK(y[n - 1] == doctest::Approx(2.0 / n).epsilon(0.005));
    CHECK(log_y[n - 1] == doctest::Approx(std::log(2.0 / n)).epsilon(0.005));
    int64_t numbers = 0;
    for (size_t i = n; i < 4 * n; ++i) numbers += !std::isnan(y[i]) || !std::isnan(log_y[i]);
    CHECK(numbers == 0);
  }
}

TEST_CASE("softmax over other axes") {
  check_axis({3, 5}, 0);
  check_axis({4, 3, 6}, 1);
  check_axis({4, 3, 6}, -3);
  check_axis({9}, 0);
}

TEST_CASE("softmax takes views") {
  const Reference x = random_reference({4, 6}, 1);
  const Tensor t = x.tensor(f64, test_device()).transpose(0, 1);
  const Reference y = Reference::of(softmax(t));
  const Reference expected = softmax_of(x, 0, false);
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 4; ++j) CHECK(std::abs(y.at({i, j}) - expected.at({j, i})) <= 1e-15);
}

TEST_CASE("softmax of infinities and of large values") {
  const double infinity = std::numeric_limits<double>::infinity();
  Reference x({2, 3});
  x.values = {1e4, -infinity, 1e4, -infinity, -infinity, -infinity};
  const Tensor t = x.tensor(f32, test_device());
  const Reference y = Reference::of(softmax(t));
  CHECK(y[0] == 0.5);
  CHECK(y[1] == 0);
  CHECK(y[2] == 0.5);
  const Reference log_y = Reference::of(log_softmax(t));
  CHECK(log_y[0] == doctest::Approx(std::log(0.5)));
  CHECK(log_y[1] == -infinity);
  for (size_t i = 3; i < 6; ++i) {
    CHECK(std::isnan(y[i]));
    CHECK(std::isnan(log_y[i]));
  }
}

TEST_CASE("softmax of a scalar is that of a row of one") {
  const Tensor x = full({}, 3.0, f32, test_device());
  for (const int axis : {-1, 0}) {
    CHECK(softmax(x, axis).item() == 1);
    CHECK(log_softmax(x, axis).item() == 0);
    CHECK(softmax_backward(softmax(x, axis), x, axis).item() == 0);
    CHECK(log_softmax_backward(log_softmax(x, axis), x, axis).item() == 0);
    CHECK(softmax(x, axis).shape() == Shape{});
  }
}

TEST_CASE("softmax of rows of one is 1, and NaN of what is not finite") {
  const double infinity = std::numeric_limits<double>::infinity();
  Reference x({4, 1});
  x.values = {-3, infinity, -infinity, std::numeric_limits<double>::quiet_NaN()};
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor t = x.tensor(dtype, test_device());
    const Reference y = Reference::of(softmax(t)), log_y = Reference::of(log_softmax(t));
    CHECK(y[0] == 1);
    CHECK(log_y[0] == 0);
    for (size_t i = 1; i < 4; ++i) {
      CHECK(std::isnan(y[i]));
      CHECK(std::isnan(log_y[i]));
    }
  }
}

TEST_CASE("softmax refuses what it cannot do") {
  CHECK_THROWS_WITH_AS(softmax(Tensor::empty({}, f32), 1),
                       "softmax: axis 1 is out of range for rank 1", Error);
  CHECK_THROWS_WITH_AS(softmax(Tensor::empty({2, 2}, i32)),
                       "softmax: dtype i32 is not supported; expected f64, f32, f16 or bf16",
                       Error);
  CHECK_THROWS_WITH_AS(log_softmax(Tensor::empty({2, 2}, f32), 2),
                       "log_softmax: axis 2 is out of range for rank 2", Error);
  CHECK_THROWS_WITH_AS(softmax_backward(Tensor::empty({2}, f32), Tensor::empty({3}, f32)),
                       "softmax_backward: shapes [2] and [3] differ", Error);
}
