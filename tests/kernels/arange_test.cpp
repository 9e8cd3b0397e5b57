#include <bs/kernels/arange.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {
using Values = std::vector<double>;
Values values(const Tensor& x) { return Reference::of(x).values; }
}  // namespace

TEST_CASE("arange") {
  const Device d = test_device();
  CHECK(values(arange(4, i64, d)) == Values{0, 1, 2, 3});
  CHECK(arange(4).dtype() == i64);
  CHECK(arange(0).shape() == Shape{0});
  CHECK(values(arange(2, 9, 3, i32, d)) == Values{2, 5, 8});
  CHECK(values(arange(2, 8, 3, u8, d)) == Values{2, 5});
  CHECK(values(arange(3, 0, -1, f32, d)) == Values{3, 2, 1});
  CHECK(values(arange(0, 1, 0.25, bf16, d)) == Values{0, 0.25, 0.5, 0.75});
  CHECK(values(arange(3, 3, 1, f64, d)).empty());
  const Values many = values(arange(100003, i64, d));
  for (size_t i = 0; i < many.size(); ++i) REQUIRE(many[i] == static_cast<double>(i));
  for (DType dtype : {f64, f32, f16, bf16, i32})
    CHECK(values(arange(-7, 900, 0.3, dtype, d)) == values(arange(-7, 900, 0.3, dtype)));
}

TEST_CASE("linspace meets both ends") {
  const Device d = test_device();
  CHECK(values(linspace(0, 1, 5, f32, d)) == Values{0, 0.25, 0.5, 0.75, 1});
  CHECK(values(linspace(3, 9, 1, f32, d)) == Values{3});
  CHECK(values(linspace(3, 9, 2, f32, d)) == Values{3, 9});
  CHECK(values(linspace(3, 9, 0, f32, d)).empty());
  for (int64_t n : {3, 10, 1001}) {
    const Values x = values(linspace(-0.1, 0.7, n, f64, d));
    CHECK(x.front() == -0.1);
    CHECK(x.back() == 0.7);
    for (size_t i = 0; i < x.size(); ++i)
      REQUIRE(std::abs(x[i] - (-0.1 + 0.8 * static_cast<double>(i) / static_cast<double>(n - 1))) <=
              2 * epsilon(f64));
  }
}

TEST_CASE("linspace is alike on every device") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t n : {1, 2, 7, 8, 9, 1000, 10007})
      CHECK(values(linspace(-3, 11, n, dtype, test_device())) ==
            values(linspace(-3, 11, n, dtype)));
}

TEST_CASE("eye") {
  const Device d = test_device();
  CHECK(values(eye(2, -1, f32, d)) == Values{1, 0, 0, 1});
  CHECK(values(eye(2, 3, i64, d)) == Values{1, 0, 0, 0, 1, 0});
  CHECK(values(eye(3, 2, bf16, d)) == Values{1, 0, 0, 1, 0, 0});
  CHECK(eye(0).shape() == Shape{0, 0});
  for (const DType dtype : {u8, bf16, f32, f64})
    for (const Shape& shape : {Shape{37, 53}, {53, 37}, {1, 40}, {40, 1}, {64, 64}}) {
      Reference r(shape);
      for (int64_t i = 0; i < std::min(shape[0], shape[1]); ++i) r.at({i, i}) = 1;
      CHECK(values(eye(shape[0], shape[1], dtype, d)) == r.values);
    }
}

TEST_CASE("arange and linspace refuse what has no end") {
  CHECK_THROWS_WITH_AS(arange(0, 3, 0), "arange: a step of 0", Error);
  CHECK_THROWS_WITH_AS(arange(0, 3, -1), "arange: steps of -1 do not lead from 0 to 3", Error);
  CHECK_THROWS_WITH_AS(arange(2, boolean), "arange: dtype bool is not supported", Error);
  CHECK_THROWS_WITH_AS(linspace(0, 1, -1), "linspace: -1 values", Error);
  CHECK_THROWS_WITH_AS(linspace(0, 1, 3, i64), "linspace: dtype i64 is not floating", Error);
}
