// Gradients of reductions, which take one pass in the dtype of sums.
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/vector_norm.h>
#include <bs/tests/kernels/reduce_reference.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// dx of a reduction, of tensors and in double: of x, its result and the gradient of that.
struct Gradient {
  const char* name;
  Reference (*result)(const Reference& x, const Dims& axes, bool keepdim);
  Tensor (*op)(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& axes, bool keepdim);
  /// Of an element, its result, the result's gradient, the mean and how many elements there are.
  double (*element)(double x, double y, double dy, double mean, double n);
};

Reference deviation_of(const Reference& x, const Dims& axes, bool keepdim) {
  Reference y = var_of(x, axes, keepdim, 0);
  for (double& v : y.values) v = std::sqrt(v);
  return y;
}
Reference norm_of(const Reference& x, const Dims& axes, bool keepdim) {
  Reference y = sums_of(x, axes, keepdim, [&](size_t i, size_t) { return x[i] * x[i]; });
  for (double& v : y.values) v = std::sqrt(v);
  return y;
}
Reference logsumexp_of(const Reference& x, const Dims& axes, bool keepdim) {
  Reference y = sums_of(x, axes, keepdim, [&](size_t i, size_t) { return std::exp(x[i]); });
  for (double& v : y.values) v = std::log(v);
  return y;
}

const Gradient gradients[] = {
    {"var_backward", deviation_of,
     [](const Tensor& x, const Tensor&, const Tensor& dy, const Dims& axes, bool keepdim) {
       return var_backward(x, dy, axes, keepdim, 0);
     },
     [](double x, double, double dy, double mean, double n) { return dy * 2 * (x - mean) / n; }},
    {"stddev_backward", deviation_of,
     [](const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& axes, bool keepdim) {
       return stddev_backward(x, y, dy, axes, keepdim, 0);
     },
     [](double x, double y, double dy, double mean, double n) {
       return y == 0 ? 0 : dy * (x - mean) / (n * y);
     }},
    {"vector_norm_backward", norm_of,
     [](const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& axes, bool keepdim) {
       return vector_norm_backward(x, y, dy, 2, axes, keepdim);
     },
     [](double x, double y, double dy, double, double) { return dy * x / y; }},
    {"logsumexp_backward", logsumexp_of,
     [](const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& axes, bool keepdim) {
       return logsumexp_backward(x, y, dy, axes, keepdim);
     },
     [](double x, double y, double dy, double, double) { return dy * std::exp(x - y); }}};

/// What a tensor of `dtype` holds of these values.
Reference rounded(const Reference& r, DType dtype) {
  return Reference::of(r.tensor(dtype, Device::cpu()));
}

void check_gradient(const Gradient& g, const ReductionCase& c, DType dtype, bool keepdim) {
  const Reference x = rounded(random_reference(c.shape, 5), dtype);
  const Reference y = rounded(g.result(x, c.axes, keepdim), dtype);
  const Reference dy = rounded(random_reference(y.shape, 6), dtype);
  const Reference mean = mean_of(x, c.axes, keepdim);
  Reference expected(c.shape);
  double steepest = 0;  // how far a result moves at most as x moves by 1
  for_each_term(c.shape, c.axes, [&](size_t i, size_t r) {
    const auto at = [&](double v) { return g.element(v, y[r], dy[r], mean[r], count_of(x, y)); };
    expected[i] = at(x[i]);
    steepest = std::max(steepest, std::abs(at(x[i] + 1) - at(x[i])));
  });
  // Rounded once. Before that x, up to 1, lies beside the mean in the dtype of sums.
  const double wide = epsilon(dtype == f64 ? f64 : f32);
  const double least = dtype == f16 ? 0x1p-25 : 0;  // half of its smallest number
  const double tolerance = 0.5 * epsilon(dtype) * largest(expected) + 8 * wide * steepest + least;
  const auto on = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
  const Tensor dense = on(x);
  // The same elements, which lie behind one another along the first axis.
  const Dims order = x.shape.rank() == 2 ? Dims{1, 0} : Dims();
  const Tensor turned = order.empty() ? dense : clone(dense.permute(order)).permute(order);
  // And those between vectors of 16 bytes.
  const Tensor longer = Tensor::empty({dense.numel() + 1}, dtype, test_device());
  const Tensor later = longer.slice(0, 1, dense.numel() + 1).view(c.shape);
  copy(dense, later);
  for (const Tensor& view : {dense, turned, later}) {
    const Tensor dx = g.op(view, on(y), on(dy), c.axes, keepdim);
    CHECK(dx.dtype() == dtype);
    check_close(g.name, Reference::of(dx), expected, tolerance);
  }
}

}  // namespace

TEST_CASE("gradients of reductions over any axes, in every dtype") {
  for (const Gradient& g : gradients)
    for (const ReductionCase& c : reduction_cases)
      for (const DType dtype : {f64, f32, f16, bf16})
        for (const bool keepdim : {false, true}) check_gradient(g, c, dtype, keepdim);
}

TEST_CASE("gradients of reductions over rows that a block holds or not, and over columns") {
  const ReductionCase cases[] = {{{3, 70000}, {1}},   {{5, 4096}, {1}}, {{600, 333}, {1}},
                                 {{4000, 3}, {1}},    {{1, 9000}, {1}}, {{300, 1032}, {0}},
                                 {{4, 90, 136}, {1}}, {{9000, 5}, {0}}, {{70, 1}, {0}}};
  int number = 0;
  for (const Gradient& g : gradients)
    for (const ReductionCase& c : cases)
      for (const DType dtype : {f64, f32, f16, bf16})
        if (is_sampled(number++)) check_gradient(g, c, dtype, true);
}

TEST_CASE("what equals an extremum shares its gradient, in every way through") {
  const ReductionCase cases[] = {{{3, 70000}, {1}},   {{5, 4096}, {1}},   {{60, 33}, {1}},
                                 {{300, 1032}, {0}},  {{9000, 5}, {0}},   {{4, 90, 136}, {1}},
                                 {{7, 5, 9}, {0, 2}}, {{40, 11}, {0, 1}}, {{5, 1}, {1}}};
  int number = 0;
  for (const ReductionCase& c : cases)
    for (const DType dtype : {f64, f32, f16, bf16})
      for (const double sign : {1, -1}) {
        if (!is_sampled(number++)) continue;
        Reference x(c.shape);
        for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i * i % 97 % 13);
        const Reference y = extremum_of(x, c.axes, false, sign);
        Reference dy(y.shape), count(y.shape), expected(c.shape);
        for (size_t r = 0; r < dy.values.size(); ++r) dy[r] = static_cast<double>(r % 7) - 3;
        for_each_term(c.shape, c.axes, [&](size_t i, size_t r) { count[r] += x[i] == y[r]; });
        for_each_term(c.shape, c.axes, [&](size_t i, size_t r) {
          expected[i] = x[i] == y[r] ? dy[r] / count[r] : 0;
        });
        const auto on = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
        const Tensor dx = extremum_backward(on(x), on(y), on(dy), c.axes, false);
        const double least = dtype == f16 ? 0x1p-25 : 0;
        check_close("extremum_backward", Reference::of(dx), expected,
                    epsilon(dtype) * largest(expected) + least);
      }
}

TEST_CASE("gradients of reductions over nothing are empty") {
  const Tensor x = on_device(Tensor::empty({0, 3}, f32)), one = on_device(Tensor::empty({0}, f32));
  for (const Gradient& g : gradients)
    CHECK(g.op(x, one, one, Dims{1}, false).shape() == Shape{0, 3});
}

TEST_CASE("gradients of reductions where values are not finite, or all equal") {
  const Tensor x = on_device(
      Tensor::from<float>({2, 2, 2, 0, 0, 0, 1, -infinity, 1, 1, not_a_number, 1}, {4, 3}));
  const Tensor dy = on_device(Tensor::from<float>({1, 1, 1, 1}));
  const auto gradient = [&](const Gradient& g, const Tensor& y) {
    return Reference::of(g.op(x, y, dy, Dims{1}, false));
  };
  const Reference of_deviation = gradient(gradients[1], stddev(x, Dims{1}, false, 0));
  const Reference of_norm = gradient(gradients[2], vector_norm(x, 2, Dims{1}));
  const Reference of_sum = gradient(gradients[3], logsumexp(x, Dims{1}));
  for (const size_t i : {0, 1, 2}) CHECK(of_deviation[i] == 0);
  for (const size_t i : {3, 4, 5}) CHECK(of_norm[i] == 0);
  CHECK(of_sum[7] == 0);
  CHECK(of_sum[6] == doctest::Approx(0.5));
  for (const size_t i : {9, 10, 11}) {
    CHECK(std::isnan(of_deviation[i]));
    CHECK(std::isnan(of_norm[i]));
    CHECK(std::isnan(of_sum[i]));
  }
}

TEST_CASE("a norm of tiny elements has a gradient") {
  // Rows of few elements, and of many, for which one quotient serves where it is in range.
  for (const int64_t n : {2, 64, 75})
    for (const DType dtype : {f32, bf16}) {
      CAPTURE(n);
      Reference x({3, n}), y({3}), dy({3});
      x[0] = 1e-30;
      y.values = {1e-30, 1, 0};
      x[static_cast<size_t>(n) + 1] = 1;
      dy.values = {1e10, 0x1p-130, 1};  // quotients: infinite, subnormal, of nothing
      const auto on = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
      const Reference dx =
          Reference::of(vector_norm_backward(on(x), on(y), on(dy), 2, Dims{1}, false));
      CHECK(dx[0] == doctest::Approx(1e10).epsilon(epsilon(dtype)));
      for (size_t i = 1; i < dx.values.size(); ++i)
        CHECK(dx[i] == (i == static_cast<size_t>(n) + 1 ? 0x1p-130 : 0));
    }
}

TEST_CASE("a norm that is not finite gives such gradients, whatever a row's length") {
  for (const int64_t n : {3, 64, 75})
    for (const DType dtype : {f64, f32, f16, bf16}) {
      CAPTURE(n);
      Reference x({4, n});
      for (double& v : x.values) v = 1;
      const auto row = [&](int64_t r) { return static_cast<size_t>(r * n); };
      x[row(0)] = infinity;
      x[row(1)] = not_a_number;
      Reference dy({4});
      dy.values = {1, 1, not_a_number, infinity};
      const auto on = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
      const Tensor norm = vector_norm(on(x), 2, Dims{1});
      const Reference dx =
          Reference::of(vector_norm_backward(on(x), norm, on(dy), 2, Dims{1}, false));
      CHECK(std::isnan(dx[row(0)]));
      CHECK(dx[row(0) + 1] == 0);
      for (size_t i = row(1); i < row(3); ++i) CHECK(std::isnan(dx[i]));
      for (size_t i = row(3); i < row(4); ++i) CHECK(dx[i] == infinity);
    }
}
