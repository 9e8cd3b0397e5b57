#include <bs/autograd/reduce.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/threads.h>
#include <bs/tests/kernels/reduce_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

using Reduction = std::function<Variable(const Variable&, const Axes&, bool)>;
using Naive = std::function<Reference(const Reference&, const Dims&, bool)>;

void check_reduction(const char* name, const Reduction& op, const Naive& naive) {
  for (const ReductionCase& c : reduction_cases)
    for (const bool keepdim : {false, true})
      check_op({.name = std::string(name) + " " + to_string(c.shape) + " over " + to_string(c.axes),
                .inputs = {c.shape},
                .op = [&](const Variables& v) { return op(v[0], c.axes, keepdim); },
                .reference = [&](const References& in) { return naive(in[0], c.axes, keepdim); }});
}

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
    for (const ReductionCase& c : reduction_cases) {
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
    for (const auto& [shape, axes] : std::vector<ReductionCase>{{{3000, 130}, {0}},
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

TEST_CASE("reductions refuse axes that do not exist or come twice") {
  const Tensor x = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(sum(x, Dims{2}), "sum: axis 2 is out of range for rank 2", Error);
  CHECK_THROWS_WITH_AS(amax(x, Dims{1, -1}), "amax: axis -1 is named twice in [1, -1]", Error);
  CHECK_THROWS_WITH_AS(sum_backward({2, 3}, x, Dims{1}, false),
                       "sum_backward: dy of shape [2, 3] for a result of shape [2]", Error);
}
