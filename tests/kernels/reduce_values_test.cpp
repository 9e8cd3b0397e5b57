// Reductions of values that are not finite, equal, far from zero, or many.
#include <bs/autograd/reduce.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/sort.h>
#include <bs/tests/kernels/reduce_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

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

TEST_CASE("errors of sums do not grow with the length of a row") {
  for (const int64_t n : {500, 8192, 8199, 100000, 1 << 20}) {
    const Tensor x = full_of(n, 12345.6).tensor(f32, test_device());
    // Every step of a sum of equal terms may be off alike.
    CHECK(mean(x).item() == doctest::Approx(x.slice(0, 0, 1).item()).epsilon(8 * epsilon(f32)));
  }
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

namespace {
/// The first place along the middle axis of what is beyond all others; NaN is.
int64_t place_of(const Reference& x, int64_t row, int64_t column, bool smallest) {
  int64_t best = 0;
  double most = x.at({row, 0, column});
  for (int64_t j = 1; j < x.shape[1] && !std::isnan(most); ++j) {
    const double value = x.at({row, j, column});
    if (!std::isnan(value) && !(smallest ? value < most : value > most)) continue;
    most = value;
    best = j;
  }
  return best;
}

void check_places(const Reference& x, DType dtype) {
  const Tensor t = x.tensor(dtype, test_device());
  const Reference seen = Reference::of(t);
  for (const bool smallest : {false, true}) {
    const Indexed found = smallest ? min(t, 1) : max(t, 1);
    const Reference values = Reference::of(found.values), indices = Reference::of(found.indices);
    const Reference alone = Reference::of(smallest ? argmin(t, 1) : argmax(t, 1));
    for (int64_t i = 0; i < x.shape[0]; ++i)
      for (int64_t k = 0; k < x.shape[2]; ++k) {
        const int64_t place = place_of(seen, i, k, smallest);
        const double value = seen.at({i, place, k}), got = values.at({i, k});
        CHECK(indices.at({i, k}) == static_cast<double>(place));
        CHECK(alone.at({i, k}) == static_cast<double>(place));
        CHECK((got == value || (std::isnan(got) && std::isnan(value))));
        CHECK((std::isnan(value) || std::signbit(got) == std::signbit(value)));
      }
  }
}
}  // namespace

// Packs of a row are looked through once their best is known.
TEST_CASE("places of extremes among ties, NaN, infinities and zeros of both signs") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t n : {1, 2, 7, 8, 9, 24, 333, 4096, 20011})
    for (const int64_t inner : {1, 3, 8}) {
      if (n * inner > 30000) continue;
      CAPTURE(n);
      CAPTURE(inner);
      Reference x({6, n, inner});
      for (size_t i = 0; i < x.values.size(); ++i)
        x[i] = static_cast<double>(i * i % 7) - 3;  // many are alike
      for (const DType dtype : {f64, f32, f16, bf16, i64, i32}) check_places(x, dtype);
      const auto row = [&](int64_t i) {
        return x.values.begin() + static_cast<std::ptrdiff_t>(i * n * inner);
      };
      std::fill(row(0), row(1), -infinity);
      std::fill(row(1), row(2), infinity);
      for (auto e = row(2); e != row(3); ++e) *e = (e - row(2)) % 2 == 0 ? -0.0 : 0.0;
      *(row(4) - inner) = nan;
      *(row(3) + n * inner / 2) = nan;
      std::fill(row(4), row(5), nan);
      for (const DType dtype : {f64, f32, f16, bf16}) check_places(x, dtype);
    }
}

// Columns that are no whole vectors: several rows of them are, and some rows are left.
TEST_CASE("reductions of many rows of few columns, by whole numbers") {
  for (const Shape& shape : {Shape{1, 9001, 3}, Shape{1, 4100, 2}, Shape{1, 20011, 5},
                             Shape{1, 5003, 100}, Shape{2, 8192, 3}, Shape{3, 8191, 1}}) {
    CAPTURE(to_string(shape));
    const auto outer = static_cast<size_t>(shape[0]), n = static_cast<size_t>(shape[1]),
               inner = static_cast<size_t>(shape[2]);
    Reference x(shape);
    std::vector<double> sums(outer * inner), least(outer * inner, 1e9), squares(outer * inner);
    for (size_t i = 0; i < x.values.size(); ++i) {
      const size_t at = i / (n * inner) * inner + i % inner;
      x[i] = static_cast<double>((i * i + i / 7) % 9) - static_cast<double>(i % 3);
      sums[at] += x[i];
      squares[at] += x[i] * x[i];
      least[at] = std::min(least[at], x[i]);
    }
    x[x.values.size() - 1] = least.back() = -20;  // in the last row, which may be left
    sums.back() = squares.back() = 0;
    for (size_t i = (outer - 1) * n * inner + inner - 1; i < x.values.size(); i += inner) {
      sums.back() += x[i];
      squares.back() += x[i] * x[i];
    }
    for (const DType dtype : {f64, f32, bf16, i64}) {
      const Tensor t = x.tensor(dtype, test_device());
      CHECK(Reference::of(amin(t, Dims{1})).values == least);
      if (dtype != bf16) CHECK(Reference::of(sum(t, Dims{1})).values == sums);
    }
    const Reference moments = Reference::of(var(x.tensor(f64, test_device()), Dims{1}, false, 0));
    for (size_t at = 0; at < sums.size(); ++at) {
      const double mean = sums[at] / static_cast<double>(n);
      CHECK(std::abs(moments[at] - (squares[at] / static_cast<double>(n) - mean * mean)) <= 1e-11);
    }
  }
}
