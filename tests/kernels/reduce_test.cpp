#include <bs/autograd/reduce.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/memory.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Calls f(index in x, index of its result) for all elements of a tensor of `shape`.
template <class F>
void for_each_term(const Shape& shape, const Dims& axes, F f) {
  for (int64_t i = 0; i < shape.product(); ++i) {
    int64_t rest = i;
    int64_t result = 0;
    int64_t step = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const int64_t index = rest % shape[axis];
      rest /= shape[axis];
      bool reduced = false;
      for (int64_t named : axes) reduced = reduced || (named + shape.rank()) % shape.rank() == axis;
      if (reduced) continue;
      result += index * step;
      step *= shape[axis];
    }
    f(static_cast<size_t>(i), static_cast<size_t>(result));
  }
}

Shape reduced(const Shape& shape, const Dims& axes, bool keepdim) {
  Shape out;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    bool gone = false;
    for (int64_t named : axes) gone = gone || (named + shape.rank()) % shape.rank() == axis;
    if (!gone) out.push_back(shape[axis]);
    if (gone && keepdim) out.push_back(1);
  }
  return out;
}

double count_of(const Reference& x, const Reference& y) {
  return static_cast<double>(x.values.size()) / static_cast<double>(y.values.size());
}

/// Sums of term(i, result), kept in more than double: among thousands of them, rounding in the
/// reference would show.
template <class Term>
Reference sums_of(const Reference& x, const Dims& axes, bool keepdim, Term term) {
  Reference y(reduced(x.shape, axes, keepdim));
  std::vector<long double> sums(y.values.size());
  for_each_term(x.shape, axes, [&](size_t i, size_t r) { sums[r] += term(i, r); });
  for (size_t r = 0; r < sums.size(); ++r) y[r] = static_cast<double>(sums[r]);
  return y;
}

Reference sum_of(const Reference& x, const Dims& axes, bool keepdim) {
  return sums_of(x, axes, keepdim, [&](size_t i, size_t) { return x[i]; });
}

Reference mean_of(const Reference& x, const Dims& axes, bool keepdim) {
  Reference y = sum_of(x, axes, keepdim);
  const double n = count_of(x, y);
  for (double& v : y.values) v /= n;
  return y;
}

Reference var_of(const Reference& x, const Dims& axes, bool keepdim, double correction) {
  const Reference mean = mean_of(x, axes, keepdim);
  const double n = count_of(x, mean);
  return sums_of(x, axes, keepdim, [&](size_t i, size_t r) {
    return (x[i] - mean[r]) * (x[i] - mean[r]) / (n - correction);
  });
}

Reference extremum_of(const Reference& x, const Dims& axes, bool keepdim, double sign) {
  Reference y(reduced(x.shape, axes, keepdim));
  std::fill(y.values.begin(), y.values.end(), -std::numeric_limits<double>::infinity());
  for_each_term(x.shape, axes, [&](size_t i, size_t r) { y[r] = std::max(y[r], sign * x[i]); });
  for (double& v : y.values) v *= sign;
  return y;
}

struct Case {
  Shape shape;
  Dims axes;
};
/// Rows, columns, middles, several runs of axes, all axes; lengths about those of pieces and
/// chunks.
const std::vector<Case> cases = {
    {{3, 5}, {1}},       {{3, 5}, {0}},       {{3, 5}, {0, 1}},       {{7}, {0}},
    {{4, 3, 5}, {1}},    {{4, 3, 5}, {0, 2}}, {{2, 3, 4, 5}, {1, 3}}, {{2, 3, 4, 5}, {-3, 2}},
    {{1, 1}, {0}},       {{3, 1, 5}, {1}},    {{2, 1031}, {1}},       {{1031, 3}, {0}},
    {{2, 3, 1030}, {1}}, {{2, 65, 9}, {1}},   {{20000}, {0}},         {{300, 70}, {0}},
    {{5, 1, 6}, {0, 2}}, {{2, 8193}, {-1}},   {{64, 33}, {0}},        {{65, 2, 1}, {0}}};

using Reduction = std::function<Variable(const Variable&, const Axes&, bool)>;
using Naive = std::function<Reference(const Reference&, const Dims&, bool)>;

void check_reduction(const char* name, const Reduction& op, const Naive& naive) {
  for (const Case& c : cases)
    for (const bool keepdim : {false, true})
      check_op({.name = std::string(name) + " " + to_string(c.shape) + " over " + to_string(c.axes),
                .inputs = {c.shape},
                .op = [&](const Variables& v) { return op(v[0], c.axes, keepdim); },
                .reference = [&](const References& in) { return naive(in[0], c.axes, keepdim); }});
}

Reference full_of(int64_t n, double value) {
  Reference r({n});
  std::fill(r.values.begin(), r.values.end(), value);
  return r;
}

Tensor on_device(const Tensor& x) { return x.to(test_device()); }

}  // namespace

TEST_CASE("sum") {
  check_reduction(
      "sum", [](const Variable& x, const Axes& a, bool k) { return sum(x, a, k); }, sum_of);
}
TEST_CASE("mean") {
  check_reduction(
      "mean", [](const Variable& x, const Axes& a, bool k) { return mean(x, a, k); }, mean_of);
}
TEST_CASE("amax") {
  check_reduction(
      "amax", [](const Variable& x, const Axes& a, bool k) { return amax(x, a, k); },
      [](const Reference& x, const Dims& a, bool k) { return extremum_of(x, a, k, 1); });
}
TEST_CASE("amin") {
  check_reduction(
      "amin", [](const Variable& x, const Axes& a, bool k) { return amin(x, a, k); },
      [](const Reference& x, const Dims& a, bool k) { return extremum_of(x, a, k, -1); });
}
TEST_CASE("var") {
  for (const double correction : {0.0, 1.0})
    for (const Case& c : cases) {
      if (reduced(c.shape, c.axes, false).product() == c.shape.product()) continue;
      check_op(
          {.name = "var " + to_string(c.shape) + " over " + to_string(c.axes),
           .inputs = {c.shape},
           .op = [&](const Variables& v) { return var(v[0], c.axes, false, correction); },
           .reference =
               [&](const References& in) { return var_of(in[0], c.axes, false, correction); }});
    }
}

TEST_CASE("reductions without axes reduce them all") {
  const Reference r = random_reference({3, 4, 5}, 1);
  const Tensor x = r.tensor(f64, test_device());
  CHECK(sum(x).shape() == Shape{});
  CHECK(sum(x).item() == doctest::Approx(sum_of(r, {0, 1, 2}, false)[0]));
  CHECK(mean(x, {}, true).shape() == Shape{1, 1, 1});
  CHECK(amax(x).item() == extremum_of(r, {0, 1, 2}, false, 1)[0]);
  const Tensor scalar = on_device(Tensor::from<float>({2.5F}, {}));
  CHECK(sum(scalar).item() == 2.5);
}

TEST_CASE("reductions of views") {
  const Reference r = random_reference({6, 8}, 2);
  const Tensor x = r.tensor(f64, test_device()).transpose(0, 1).slice(0, 1, 8, 3);
  const Reference seen = Reference::of(x);
  const Reference y = Reference::of(sum(x, Dims{0}));
  for (size_t i = 0; i < 6; ++i) CHECK(y[i] == doctest::Approx(sum_of(seen, {0}, false)[i]));
  const Tensor repeated = on_device(Tensor::from<float>({1, 2}, {2, 1})).expand({2, 3});
  CHECK(Reference::of(sum(repeated, Dims{1})).values == std::vector<double>{3, 6});
}

TEST_CASE("reductions over nothing") {
  const Tensor x = Tensor::empty({3, 0}, f32, test_device());
  CHECK(Reference::of(sum(x, Dims{1})).values == std::vector<double>{0, 0, 0});
  CHECK(sum(x, Dims{0}).shape() == Shape{0});
  CHECK(std::isnan(Reference::of(mean(x, Dims{1}))[0]));
  CHECK(std::isnan(Reference::of(var(x, Dims{1}))[2]));
  CHECK(amax(x, Dims{0}).shape() == Shape{0});
  CHECK_THROWS_WITH_AS(amax(x, Dims{1}), "amax: nothing to choose from in shape [3, 0]", Error);
  CHECK_THROWS_WITH_AS(amin(x), "amin: nothing to choose from in shape [3, 0]", Error);
  CHECK_THROWS_WITH_AS(argmax(x), "argmax: nothing to choose from in shape [3, 0]", Error);
}

TEST_CASE("reductions of integers") {
  const Tensor x = on_device(Tensor::from<int32_t>({2147483647, 1, -5, 4}, {2, 2}));
  CHECK(sum(x).dtype() == i64);
  CHECK(sum(x).item() == 2147483647.0);
  CHECK(amax(x, Dims{1}).dtype() == i32);
  CHECK(Reference::of(amin(x, Dims{0})).values == std::vector<double>{-5, 1});
  const Tensor flags = on_device(Tensor::from<bool>({true, true, false}));
  CHECK(sum(flags).item() == 2);
  CHECK(amax(flags).dtype() == boolean);
  CHECK_THROWS_WITH_AS(mean(x), "mean: dtype i32 is not supported; expected f64, f32, f16 or bf16",
                       Error);
}

TEST_CASE("amax and amin pass NaN on, and equal elements share the gradient") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const double which : {nan, -nan})
      for (const int64_t at : {0, 1, 40, 69}) {
        Reference r({70});
        r[static_cast<size_t>(at)] = which;
        CHECK(std::isnan(amax(r.tensor(dtype, test_device())).item()));
        CHECK(std::isnan(amin(r.tensor(dtype, test_device())).item()));
      }
  const Variable x(on_device(Tensor::from<float>({3, 1, 3, 3, 2, 0}, {2, 3})), true);
  amax(x, Dims{1}).backward(on_device(Tensor::from<float>({1, 6})));
  CHECK(Reference::of(x.grad()).values == std::vector<double>{0.5, 0, 0.5, 6, 0, 0});
}

TEST_CASE("amax and amin of infinities, of numbers below 0, and of the smallest ones") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const auto& row : std::vector<std::vector<double>>{{-infinity, -infinity},
                                                            {infinity, -infinity},
                                                            {-infinity, -2, -3},
                                                            {0x1p-14, 0x1p-15, 0x1p-16},
                                                            {-0x1p-14, -0x1p-16},
                                                            {1, 1.5, -1.5, -2, 2}}) {
      Reference r({static_cast<int64_t>(row.size())});
      r.values = row;
      const Tensor x = r.tensor(dtype, test_device());
      CHECK(amax(x).item() == *std::ranges::max_element(row));
      CHECK(amin(x).item() == *std::ranges::min_element(row));
    }
}

TEST_CASE("more ties than f16 can count share the gradient") {
  const int64_t n = 70000;
  for (const DType dtype : {f16, bf16, f32}) {
    const Variable x(full_of(n, 2).tensor(dtype, test_device()), true);
    const Tensor dy = on_device(full_of(1, 1000).tensor(dtype, Device::cpu())).view({});
    for (const bool smallest : {false, true}) {
      const Tensor y = smallest ? amin(x.data()) : amax(x.data());
      const Reference dx = Reference::of(extremum_backward(x.data(), y, dy, {}, false));
      const double each = Reference::of(dy)[0] / static_cast<double>(n);
      for (const size_t at : {size_t{0}, static_cast<size_t>(n) - 1})
        CHECK(dx[at] == doctest::Approx(each).epsilon(epsilon(dtype)));
    }
  }
}

TEST_CASE("reductions of bytes: every way through, by integers counted one by one") {
  for (const auto& [shape, axes] : cases) {
    std::vector<uint8_t> values(static_cast<size_t>(shape.product()));
    Reference r(shape), ones(shape);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint8_t>(i * 37 % 256);
      r[i] = values[i];
      ones[i] = values[i] > 100 ? 1 : 0;
    }
    const Tensor x = on_device(Tensor::from<uint8_t>(values, shape));
    const Tensor flags = on_device(gt(Tensor::from<uint8_t>(values, shape), 100));
    CAPTURE(to_string(shape));
    CHECK(Reference::of(sum(x, axes)).values == sum_of(r, axes, false).values);
    CHECK(Reference::of(amax(x, axes)).values == extremum_of(r, axes, false, 1).values);
    CHECK(Reference::of(amin(x, axes)).values == extremum_of(r, axes, false, -1).values);
    CHECK(Reference::of(sum(flags, axes)).values == sum_of(ones, axes, false).values);
    CHECK(Reference::of(amax(flags, axes)).values == extremum_of(ones, axes, false, 1).values);
  }
  const Tensor x = on_device(Tensor::from<uint8_t>({3, 255, 255, 9, 0, 200}, {2, 3}));
  CHECK(Reference::of(argmax(x)).values == std::vector<double>{1, 2});
  CHECK(Reference::of(argmax(x, 0)).values == std::vector<double>{1, 0, 0});
}

TEST_CASE("reductions of bytes make no wide copy of them") {
  const int64_t n = int64_t{1} << 20;
  for (const DType dtype : {u8, boolean}) {
    const Tensor x = full({n / 64, 64}, 1, dtype, test_device());
    const auto check = [&](const char* name, const auto& reduction) {
      CAPTURE(name);
      reset_peak_memory(test_device());
      const int64_t before = memory_statistics(test_device()).in_use;
      reduction();
      CHECK(memory_statistics(test_device()).peak - before < n);
    };
    check("sum", [&] { CHECK(sum(x).item() == static_cast<double>(n)); });
    check("rows", [&] { sum(x, 1); });
    check("columns", [&] { sum(x, 0); });
    check("amax", [&] { CHECK(amax(x).item() == 1); });
    check("amin", [&] { CHECK(amin(x).item() == 1); });
    check("argmax", [&] { argmax(x, 0); });
  }
}

TEST_CASE("reductions of many short rows, by whole numbers") {
  for (const Shape& shape :
       {Shape{140001, 1}, Shape{70003, 3}, Shape{40001, 16}, Shape{9001, 100}}) {
    CAPTURE(to_string(shape));
    Reference x(shape);
    const auto n = static_cast<size_t>(shape[1]), rows = static_cast<size_t>(shape[0]);
    std::vector<double> sums(rows), largest(rows), places(rows), squares(rows);
    for (size_t r = 0; r < rows; ++r) {
      largest[r] = -1e9;
      for (size_t j = 0; j < n; ++j) {
        const double value = static_cast<double>((r * 7 + j * j * 5) % 13) - 6;
        x[r * n + j] = value;
        sums[r] += value;
        squares[r] += value * value;
        if (value > largest[r]) places[r] = static_cast<double>(j);
        largest[r] = std::max(largest[r], value);
      }
    }
    for (const DType dtype : {f64, f32, f16, bf16, i64}) {
      const Tensor t = x.tensor(dtype, test_device());
      CHECK(Reference::of(argmax(t, 1)).values == places);
      CHECK(Reference::of(amax(t, Dims{1})).values == largest);
      if (dtype == bf16) continue;  // has no room for the sums
      CHECK(Reference::of(sum(t, Dims{1})).values == sums);
      if (dtype != f64) continue;
      const Reference moments = Reference::of(var(t, Dims{1}, false, 0));
      double worst = 0;
      for (size_t r = 0; r < rows; ++r) {
        const double mean = sums[r] / static_cast<double>(n);
        worst = std::max(
            worst, std::abs(moments[r] - (squares[r] / static_cast<double>(n) - mean * mean)));
      }
      CHECK(worst <= 1e-12);
    }
  }
}

TEST_CASE("argmax finds the first of the largest") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = on_device(Tensor::from<float>({1, 5, 5, 7, nan, 8, -1, -1, -2}, {3, 3}));
  CHECK(argmax(x).dtype() == i64);
  CHECK(Reference::of(argmax(x)).values == std::vector<double>{1, 1, 0});
  CHECK(Reference::of(argmax(x, 0)).values == std::vector<double>{1, 1, 1});
  CHECK(argmax(x, 0, true).shape() == Shape{1, 3});
  const Reference r = random_reference({4, 3000, 2}, 5);
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor values = r.tensor(dtype, test_device());
    const Reference seen = Reference::of(values);
    const Reference found = Reference::of(argmax(values, 1));
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 2; ++j) {
        int64_t best = 0;
        for (int64_t k = 1; k < 3000; ++k)
          if (seen.at({i, k, j}) > seen.at({i, best, j})) best = k;
        CHECK(found.at({i, j}) == static_cast<double>(best));
      }
  }
}

TEST_CASE("sum_to undoes a broadcast") {
  const Reference r = random_reference({2, 3, 4}, 6);
  const Tensor x = r.tensor(f64, test_device());
  CHECK(sum_to(x, {2, 3, 4}).shares_storage(x));
  const auto check = [&](const Shape& shape, const Dims& axes) {
    const Reference y = Reference::of(sum_to(x, shape));
    const Reference expected = sum_of(r, axes, false);
    CHECK(y.shape == shape);
    REQUIRE(y.values.size() == expected.values.size());
    for (size_t i = 0; i < y.values.size(); ++i) CHECK(y[i] == doctest::Approx(expected[i]));
  };
  check({4}, {0, 1});
  check({3, 1}, {0, 2});
  check({2, 1, 4}, {1});
  check({}, {0, 1, 2});
  CHECK_THROWS_WITH_AS(sum_to(x, {5}), "sum_to: shape [5] does not broadcast to [2, 3, 4]", Error);
  CHECK_THROWS_WITH_AS(sum_to(x, {1, 2, 3, 4}),
                       "sum_to: shape [1, 2, 3, 4] does not broadcast to [2, 3, 4]", Error);
}

TEST_CASE("reductions give the same bits for any number of threads") {
  const int before = threads();
  for (const DType dtype : {f32, bf16, f64})
    for (const auto& [shape, axes] : std::vector<Case>{{{3000, 130}, {0}},
                                                       {{40, 20000}, {1}},
                                                       {{700001}, {0}},
                                                       {{3, 900, 70}, {1}},
                                                       {{90, 70, 30}, {0, 2}}}) {
      const Tensor x = random_reference(shape, 8).tensor(dtype, test_device());
      const Reference sums = Reference::of(sum(x, axes));
      const Reference variances = Reference::of(var(x, axes));
      set_threads(before == 1 ? 3 : 1);
      CHECK(Reference::of(sum(x, axes)).values == sums.values);
      CHECK(Reference::of(var(x, axes)).values == variances.values);
      set_threads(before);
    }
}

TEST_CASE("sums over thousands of rows lose next to nothing") {
  const Reference r = random_reference({4096, 300}, 9, 0, 1);
  const Reference rows = Reference::of(r.tensor(f32, Device::cpu()));
  const Tensor x = rows.tensor(f32, test_device());
  // Sums of up to 4096, made in pieces of at most some hundred terms: far from 4096 steps of error.
  check_close("sum", Reference::of(sum(x, Dims{0})), sum_of(rows, {0}, false),
              64 * epsilon(f32) * 4096);
  check_close("sum", Reference::of(sum(x)), sum_of(rows, {0, 1}, false),
              64 * epsilon(f32) * 4096 * 300);
  check_close("mean", Reference::of(mean(x, Dims{0})), mean_of(rows, {0}, false),
              64 * epsilon(f32));
}

TEST_CASE("16-bit reductions are kept in f32") {
  const Tensor large = on_device(full_of(200, 60000).tensor(f16, Device::cpu()));
  CHECK(mean(large).item() == doctest::Approx(60000).epsilon(epsilon(f16)));
  CHECK(std::isinf(sum(large).item()));
  const Tensor small = on_device(full_of(10000, 0.001).tensor(bf16, Device::cpu()));
  CHECK(sum(small).item() == doctest::Approx(10000 * small.slice(0, 0, 1).item()).epsilon(0.004));
}

TEST_CASE("var of values far from zero does not cancel") {
  Reference r = random_reference({5000}, 10);
  for (double& v : r.values) v += 3000;
  const Reference seen = Reference::of(r.tensor(f32, Device::cpu()));
  const double expected = var_of(seen, {0}, false, 1)[0];
  // The mean of 3000 is off by some of its steps, 2.4e-4 each, whose square is added.
  CHECK(var(seen.tensor(f32, test_device())).item() == doctest::Approx(expected).epsilon(1e-5));
}

TEST_CASE("sums pass infinities and NaN on") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int64_t rows : {1, 70}) {
    Reference r({rows, 3});
    r[0] = infinity;
    r[1] = -infinity;
    r[2] = std::nan("");
    const Reference y = Reference::of(sum(r.tensor(f32, test_device()), Dims{0}));
    CHECK(y[0] == infinity);
    CHECK(y[1] == -infinity);
    CHECK(std::isnan(y[2]));
    CHECK(std::isnan(sum(r.tensor(f32, test_device())).item()));
  }
}

TEST_CASE("reductions refuse axes that do not exist or come twice") {
  const Tensor x = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(sum(x, Dims{2}), "sum: axis 2 is out of range for rank 2", Error);
  CHECK_THROWS_WITH_AS(amax(x, Dims{1, -1}), "amax: axis -1 is named twice in [1, -1]", Error);
  CHECK_THROWS_WITH_AS(sum_backward({2, 3}, x, Dims{1}, false),
                       "sum_backward: dy of shape [2, 3] for a result of shape [2]", Error);
}
