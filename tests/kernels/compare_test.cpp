#include <bs/kernels/compare.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {
using Values = std::vector<double>;

Values values(const Tensor& y) {
  CHECK(y.dtype() == boolean);
  return Reference::of(y).values;
}
}  // namespace

TEST_CASE("comparisons of every dtype") {
  for (const DType dtype : {u8, i32, i64, f16, bf16, f32, f64}) {
    Reference a({4});
    Reference b({4});
    a.values = {1, 2, 3, 7};
    b.values = {2, 2, 1, 7};
    const Tensor x = a.tensor(dtype, test_device());
    const Tensor y = b.tensor(dtype, test_device());
    CHECK(values(eq(x, y)) == Values{0, 1, 0, 1});
    CHECK(values(ne(x, y)) == Values{1, 0, 1, 0});
    CHECK(values(lt(x, y)) == Values{1, 0, 0, 0});
    CHECK(values(le(x, y)) == Values{1, 1, 0, 1});
    CHECK(values(gt(x, y)) == Values{0, 0, 1, 0});
    CHECK(values(ge(x, y)) == Values{0, 1, 1, 1});
    CHECK(values(gt(x, 2)) == Values{0, 0, 1, 1});
    CHECK(values(le(x, 2)) == Values{1, 1, 0, 0});
    CHECK(values(lt(x, 1.5)) == Values{1, 0, 0, 0});
  }
}

TEST_CASE("comparisons of all bytes, with bytes and with numbers that are none") {
  for (const DType dtype : {u8, boolean}) {
    const int64_t n = dtype == u8 ? 256 : 2;
    Reference a({n, n}), b({n, n});
    for (size_t i = 0; i < a.values.size(); ++i) {
      a[i] = static_cast<double>(i / static_cast<size_t>(n));
      b[i] = static_cast<double>(i % static_cast<size_t>(n));
    }
    const Tensor x = a.tensor(dtype, test_device()), y = b.tensor(dtype, test_device());
    const auto check = [&](const Tensor& actual, auto compare) {
      const Values of = values(actual);
      for (size_t i = 0; i < of.size(); ++i) CHECK(of[i] == (compare(a[i], b[i]) ? 1 : 0));
    };
    check(eq(x, y), [](double p, double q) { return p == q; });
    check(ne(x, y), [](double p, double q) { return p != q; });
    check(lt(x, y), [](double p, double q) { return p < q; });
    check(le(x, y), [](double p, double q) { return p <= q; });
    check(gt(x, y), [](double p, double q) { return p > q; });
    check(ge(x, y), [](double p, double q) { return p >= q; });
    for (const int number : {-1, 0, 1, 2, 255, 256}) {
      check(eq(x, number), [=](double p, double) { return p == number; });
      check(lt(x, number), [=](double p, double) { return p < number; });
      check(gt(x, number), [=](double p, double) { return p > number; });
    }
    check(ge(x, 0.5), [](double p, double) { return p >= 0.5; });
  }
}

TEST_CASE("comparisons with integers that the tensor's dtype does not hold") {
  constexpr int64_t wrap = int64_t{1} << 32;  // of which the lower half is 0
  for (const DType dtype : {boolean, u8, i32, i64}) {
    CAPTURE(dtype);
    Reference a({2});
    a.values = {0, dtype == boolean ? 1.0 : 5.0};
    const Tensor x = a.tensor(dtype, test_device());
    const auto five = static_cast<int64_t>(a[1]);
    for (const int64_t number : {3000000000, wrap, wrap + five, int64_t{1} << 40}) {
      CAPTURE(number);
      for (const int64_t n : {number, -number}) {
        const Values below = n > 0 ? Values{1, 1} : Values{0, 0};
        const Values above = n > 0 ? Values{0, 0} : Values{1, 1};
        CHECK(values(eq(x, n)) == Values{0, 0});
        CHECK(values(ne(x, n)) == Values{1, 1});
        CHECK(values(lt(x, n)) == below);
        CHECK(values(le(x, n)) == below);
        CHECK(values(gt(x, n)) == above);
        CHECK(values(ge(x, n)) == above);
        CHECK(values(n > x) == below);
      }
    }
    CHECK(values(gt(x, std::numeric_limits<int64_t>::min())) == Values{1, 1});
  }
}

TEST_CASE("comparisons broadcast, and mix dtypes and strides") {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}).to(test_device());
  const Tensor b = Tensor::from<int64_t>({3, 2}).to(test_device());
  CHECK(values(lt(a.transpose(0, 1), b)) == Values{1, 0, 1, 0, 0, 0});
  CHECK(eq(a, Tensor::empty({0, 1, 1}, f32, test_device())).shape() == Shape{0, 2, 3});
}

TEST_CASE("comparisons of long rows") {
  const Reference r = random_reference({3, 1025}, 1);
  const auto y = values(gt(r.tensor(f32, test_device()), 0));
  for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == (r[i] > 0 ? 1 : 0));
}

TEST_CASE("NaN differs from everything and is in no order") {
  const Tensor x = Tensor::from<float>({std::numeric_limits<float>::quiet_NaN()}).to(test_device());
  CHECK(values(eq(x, x)) == Values{0});
  CHECK(values(ne(x, x)) == Values{1});
  CHECK(values(le(x, x)) == Values{0});
  CHECK(values(ge(x, 0)) == Values{0});
}

TEST_CASE("comparisons refuse shapes that do not broadcast") {
  CHECK_THROWS_WITH_AS(gt(Tensor::empty({2}, f32), Tensor::empty({3}, f32)),
                       "gt: shapes [3] and [2] do not broadcast (3 against 2)", Error);
}
