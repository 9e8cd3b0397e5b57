#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/logic.h>
#include <bs/kernels/sort.h>
#include <bs/tests/kernels/reduce_reference.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

Tensor bools(const Reference& values) {
  return on_device(ne(values.tensor(f32, Device::cpu()), 0));
}

/// 0 and 1 in an order of no short period.
Reference some_bools(const Shape& shape, size_t seed) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i)
    r[i] = static_cast<double>((i * i + seed * i) / 7 % 3 == 0);
  return r;
}

}  // namespace

TEST_CASE("any and all along every axis, of one that differs too") {
  for (const auto& [shape, axes] : reduction_cases) {
    const std::string extents = to_string(shape);
    CAPTURE(extents);
    std::vector<Reference> cases = {some_bools(shape, 3), Reference(shape), Reference(shape)};
    for (double& v : cases[2].values) v = 1;
    if (!cases[1].values.empty()) {
      cases.push_back(cases[1]);
      cases.back().values.back() = 1;
      cases.push_back(cases[2]);
      cases.back().values[cases[2].values.size() / 2] = 0;
    }
    for (const Reference& r : cases) {
      const Tensor x = bools(r);
      CHECK(Reference::of(any(x, axes)).values == extremum_of(r, axes, false, 1).values);
      CHECK(Reference::of(all(x, axes, true)).values == extremum_of(r, axes, true, -1).values);
      CHECK(any(x, axes).dtype() == boolean);
    }
  }
  CHECK(Reference::of(all(zeros({0, 3}, boolean, test_device()), Dims{0})).values ==
        std::vector<double>{1, 1, 1});
  CHECK(Reference::of(any(zeros({0, 3}, f32, test_device()), Dims{0})).values ==
        std::vector<double>{0, 0, 0});
  CHECK_THROWS_WITH_AS(any(zeros({2, 3}, f32, test_device()), Dims{0, 0}),
                       doctest::Contains("any: axis 0 is named twice"), Error);
}

TEST_CASE("a single one among millions of bools") {
  const int64_t n = large_on_gpu(1 << 22, 1 << 16) + 48;
  Tensor x = zeros({2, n}, boolean, test_device());
  for (const int64_t place : {int64_t{0}, int64_t{17}, n / 2 + 5, n - 1}) {
    fill(x, 0);
    fill(x.slice(0, 1, 2).slice(1, place, place + 1), 1);
    CHECK(Reference::of(any(x, Dims{1})).values == std::vector<double>{0, 1});
    CHECK(any(x).item() == 1);
    fill(x, 1);
    fill(x.slice(0, 1, 2).slice(1, place, place + 1), 0);
    CHECK(Reference::of(all(x, Dims{1})).values == std::vector<double>{1, 0});
    CHECK(all(x).item() == 0);
  }
}

TEST_CASE("bools in words of four, beside rows, columns and numbers") {
  struct Case {
    const char* name;
    Tensor (*op)(const Tensor&, const Tensor&);
    std::function<bool(bool, bool)> expected;
  };
  const std::vector<Case> cases = {{"and", logical_and, [](bool a, bool b) { return a && b; }},
                                   {"or", logical_or, [](bool a, bool b) { return a || b; }},
                                   {"xor", logical_xor, [](bool a, bool b) { return a != b; }},
                                   {"eq", eq, [](bool a, bool b) { return a == b; }},
                                   {"lt", lt, [](bool a, bool b) { return a < b; }},
                                   {"le", le, [](bool a, bool b) { return a <= b; }},
                                   {"minimum", minimum, [](bool a, bool b) { return a && b; }},
                                   {"maximum", maximum, [](bool a, bool b) { return a || b; }}};
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 15}, Shape{1, 16}, Shape{3, 17}, Shape{5, 64}})
    for (const Shape& other : {shape, Shape{1, shape[1]}, Shape{shape[0], 1}, Shape{1, 1}}) {
      const Reference a = some_bools(shape, 1), b = some_bools(other, 2);
      for (const Case& c : cases) {
        const std::string name = c.name;
        CAPTURE(name);
        const Reference y = Reference::of(c.op(bools(a), bools(b)));
        for (int64_t i = 0; i < shape[0]; ++i)
          for (int64_t j = 0; j < shape[1]; ++j) {
            const bool right = b.at({other[0] == 1 ? 0 : i, other[1] == 1 ? 0 : j}) != 0;
            CHECK(y.at({i, j}) == c.expected(a.at({i, j}) != 0, right));
          }
      }
      const Reference opposite = Reference::of(logical_not(bools(a)));
      const Reference ones = Reference::of(eq(bools(a), 1));
      for (size_t i = 0; i < a.values.size(); ++i) {
        CHECK(opposite[i] == (a[i] == 0));
        CHECK(ones[i] == a[i]);
      }
    }
}

TEST_CASE("equal and allclose find the one element that differs") {
  const int64_t n = large_on_gpu(1 << 22, 1 << 14) + 3;
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8}) {
    const std::string name = to_string(dtype);
    CAPTURE(name);
    const Tensor x = full({n}, 3, dtype, test_device());
    Tensor y = full({n}, 3, dtype, test_device());
    CHECK(equal(x, y));
    CHECK(allclose(x, y));
    for (const int64_t place : {int64_t{0}, int64_t{7}, n / 2, n - 4, n - 1}) {
      fill(y.slice(0, place, place + 1), 4);
      CHECK(!equal(x, y));
      CHECK(!allclose(x, y));
      CHECK(!equal(y, x));
      CHECK(allclose(x, y, {0.25, 0}));
      CHECK(!allclose(x, y, {0.2, 0}));
      CHECK(allclose(y, x, {0, 1}));
      CHECK(equal(x.slice(0, place + 1, n), y.slice(0, place + 1, n)));
      fill(y.slice(0, place, place + 1), 3);
    }
  }
}

TEST_CASE("allclose beside rows, columns and transposes, and of bools") {
  const Reference rows = some_bools({1, 40}, 2), columns = some_bools({33, 1}, 1);
  Reference sum({33, 40});
  for (int64_t i = 0; i < 33; ++i)
    for (int64_t j = 0; j < 40; ++j) sum.at({i, j}) = rows.at({0, j});
  for (const DType dtype : {f32, bf16, i64, boolean}) {
    const auto on = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
    CHECK(allclose(on(sum), on(rows)));
    CHECK(allclose(on(rows), on(sum)));
    CHECK(!allclose(on(sum), on(columns)));
    const Tensor turned = contiguous(on(sum).transpose(0, 1)).transpose(0, 1);
    CHECK(equal(on(sum), turned));
    CHECK(equal(turned, on(sum)));
    CHECK(!equal(on(rows), on(sum)));
  }
  CHECK(equal(zeros({0, 3}, f32, test_device()), zeros({0, 3}, f32, test_device())));
  CHECK(equal(full({3}, 2, i32, test_device()), full({3}, 2, f64, test_device())));
  CHECK_THROWS_WITH_AS(allclose(zeros({2}, f32, test_device()), zeros({3}, f32, test_device())),
                       doctest::Contains("allclose"), Error);
}

TEST_CASE("allclose of values that are not finite, and of integers beyond doubles") {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const auto one = [&](double v) { return full({9}, v, dtype, test_device()); };
    CHECK(allclose(one(inf), one(inf)));
    CHECK(!allclose(one(inf), one(-inf)));
    CHECK(!allclose(one(1), one(inf), {0.5, 1}));
    CHECK(!allclose(one(inf), one(1), {0.5, 1}));
    CHECK(!allclose(one(nan), one(nan)));
    CHECK(!allclose(one(nan), one(0), {inf, inf, true}));
    CHECK(allclose(one(nan), one(nan), {1e-5, 1e-8, true}));
    CHECK(!allclose(one(nan), one(1), {1e-5, 1e-8, true}));
    CHECK(!equal(one(nan), one(nan)));
    CHECK(equal(one(0), one(-0.0)));
  }
  const int64_t most = std::numeric_limits<int64_t>::max();
  const Tensor a = on_device(Tensor::from<int64_t>({most, -most}, {2}));
  const Tensor b = on_device(Tensor::from<int64_t>({most - 1, 1 - most}, {2}));
  CHECK(!equal(a, b));
  CHECK(allclose(a, b, {0, 1}));
  CHECK(!allclose(a, b, {0, 0.5}));
  CHECK(!allclose(a, on_device(Tensor::from<int64_t>({-most, most}, {2})), {1, 0}));
}

TEST_CASE("argmin finds the first of the smallest, in every way through") {
  for (const auto& [shape, axes] : reduction_cases) {
    if (axes.rank() != 1) continue;
    const std::string extents = to_string(shape);
    CAPTURE(extents);
    for (const DType dtype : {f64, f32, bf16, i64, u8}) {
      Reference x(shape);
      for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i * 37 % 101);
      if (shape.product() == 0) continue;
      const Tensor t = x.tensor(dtype, test_device());
      for (double& v : x.values) v = 200 - v;
      const Tensor opposite = x.tensor(dtype, test_device());
      CHECK(Reference::of(argmin(t, axes)).values == Reference::of(argmax(opposite, axes)).values);
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor rows =
      on_device(Tensor::from<float>({2, -inf, nan, 1, inf, inf, inf, inf, 3, 0, -0.F, 0}, {3, 4}));
  CHECK(Reference::of(argmin(rows, 1)).values == std::vector<double>{2, 0, 1});
  CHECK(std::isnan(Reference::of(min(rows, 1).values)[0]));
  CHECK_THROWS_WITH_AS(argmin(zeros({2, 0}, f32, test_device()), 1),
                       "argmin: nothing to choose from in shape [2, 0]", Error);
}
