// Reductions over axes that are no neighbours: each run of them is reduced in place.
#include <bs/autograd/vector_norm.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/peak_memory.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// The first of the largest of axes 0 and 2, counted along both, of a matrix for each (j, l).
int64_t best_of(const Reference& x, int64_t j, int64_t l) {
  int64_t best = 0;
  double most = 0;
  for (int64_t i = 0; i < x.shape[0]; ++i)
    for (int64_t k = 0; k < x.shape[2]; ++k) {
      const double value = x.at({i, j, k, l});
      const int64_t place = i * x.shape[2] + k;
      const bool better = value > most || (std::isnan(value) && !std::isnan(most));
      if (place > 0 && !better) continue;
      best = place;
      most = value;
    }
  return best;
}

/// var and stddev over axes 0 and 2 of x, which has four.
void check_deviations(const Tensor& x) {
  const Shape shape = x.shape();
  const DType dtype = x.dtype();
  CAPTURE(shape);
  CAPTURE(dtype);
  const Reference seen = Reference::of(x), found = Reference::of(var(x, Dims{0, 2})),
                  roots = Reference::of(stddev(x, Dims{0, 2}));
  const int64_t each = shape[0] * shape[2];
  // Some hundred additions in f32 a thread; then the rounding of the result.
  const double bound = dtype == f64 ? 1e-12 : dtype == f32 ? 1e-5 : dtype == f16 ? 0x1p-10 : 0x1p-8;
  for (int64_t j = 0; j < shape[1]; ++j)
    for (int64_t l = 0; l < shape[3]; ++l) {
      double mean = 0, squares = 0;
      const auto visit = [&](const auto& f) {
        for (int64_t i = 0; i < shape[0]; ++i)
          for (int64_t k = 0; k < shape[2]; ++k) f(seen.at({i, j, k, l}));
      };
      visit([&](double value) { mean += value / static_cast<double>(each); });
      visit([&](double value) { squares += (value - mean) * (value - mean); });
      const double expected = squares / static_cast<double>(each - 1);
      CHECK(std::abs(found.at({j, l}) - expected) <= bound * expected);
      CHECK(std::abs(roots.at({j, l}) - std::sqrt(expected)) <= bound * std::sqrt(expected));
    }
}

}  // namespace

TEST_CASE("argmax over axes apart finds the first of the largest") {
  Reference x = random_reference({5, 3, 7, 2}, 3);
  for (double& value : x.values) value = std::round(value * 4);  // many are equal
  x.at({3, 1, 2, 0}) = x.at({3, 1, 4, 0}) = x.at({4, 1, 0, 0}) =
      std::numeric_limits<double>::quiet_NaN();
  x.at({2, 2, 6, 1}) = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor found = argmax(x.tensor(dtype, test_device()), Dims{0, 2});
    REQUIRE(found.shape() == Shape{3, 2});
    REQUIRE(found.dtype() == i64);
    const Reference places = Reference::of(found);
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t l = 0; l < 2; ++l) {
        CAPTURE(j);
        CAPTURE(l);
        CHECK(places.at({j, l}) == static_cast<double>(best_of(x, j, l)));
      }
    CHECK(argmax(x.tensor(dtype, test_device()), Dims{0, 2}, true).shape() == Shape{1, 3, 1, 2});
  }
}

TEST_CASE("var over axes apart, of values far from zero") {
  Reference x({6, 4, 9, 3, 5});
  const Reference noise = random_reference(x.shape, 9);
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = 1000 + noise.values[i];
  const Tensor values = x.tensor(f32, test_device());
  const Reference seen = Reference::of(values), found = Reference::of(var(values, Dims{0, 2, 4}));
  for (int64_t j = 0; j < 4; ++j)
    for (int64_t l = 0; l < 3; ++l) {
      double sum = 0, squares = 0;
      const auto each = [&](const auto& visit) {
        for (int64_t i = 0; i < 6; ++i)
          for (int64_t k = 0; k < 9; ++k)
            for (int64_t m = 0; m < 5; ++m) visit(seen.at({i, j, k, l, m}));
      };
      each([&](double value) { sum += value / 270; });
      each([&](double value) { squares += (value - sum) * (value - sum); });
      // Each difference of numbers about 1000 is off by up to 2^-14, a step of theirs, and so is
      // the mean; the differences themselves are about 1.
      CHECK(std::abs(found.at({j, l}) - squares / 269) <= 0x1p-12);
    }
  CHECK(std::isnan(var(full({2, 1, 1}, 3, f32, test_device()).slice(0, 0, 1)).item()));
}

TEST_CASE("var and stddev over axes apart of which the last run is long") {
  for (const Shape& shape : {Shape{2, 3, 100003, 1}, Shape{2, 3, 9001, 5}})
    for (const DType dtype : {f64, f32, bf16})
      check_deviations(random_reference(shape, 11).tensor(dtype, test_device()));
}

TEST_CASE("var and stddev over a first and a last axis: parts of rows") {
  // Rows that share a warp, that a warp or a block has, that several blocks share; few parts and
  // many, at last more than are merged at once.
  const Shape shapes[] = {{40, 5, 3, 1},    {4, 37, 64, 1},   {33, 2, 75, 1},  {3, 70, 1032, 1},
                          {2, 2, 70000, 1}, {1024, 3, 16, 1}, {1500, 3, 4, 1}, {2, 9, 1, 1}};
  for (const Shape& shape : shapes)
    for (const DType dtype : {f64, f32, f16, bf16}) {
      const Tensor x = random_reference(shape, 12).tensor(dtype, test_device());
      check_deviations(x);
      const Tensor longer = Tensor::empty({x.numel() + 1}, dtype, test_device());
      const Tensor later = longer.slice(0, 1, x.numel() + 1).view(shape);  // between vectors
      copy(x, later);
      check_deviations(later);
    }
}

TEST_CASE("var of numbers whose squares are infinite is finite") {
  for (const Shape& shape : {Shape{4, 3, 64}, Shape{40, 5, 3}, Shape{2, 2, 70000}})
    for (const Dims& axes : {Dims{0, 2}, Dims{0}, Dims{2}, Dims{0, 1, 2}}) {
      // Off by some roundings of 3e19, each below 4e12.
      const Tensor x = full(shape, 3e19, f32, test_device());
      for (const double found : Reference::of(var(x, axes)).values) CHECK(found <= 1e30);
      for (const double found : Reference::of(stddev(x, axes)).values) CHECK(found <= 1e15);
    }
}

TEST_CASE("logsumexp, whichever way its axes lie") {
  struct Way {
    Shape shape;
    Axes axes;
  };
  for (const Way& way :
       {Way{{3, 5000}, Dims{1}}, Way{{700, 33}, Dims{0}}, Way{{4, 3, 5}, Dims{0, 2}},
        Way{{6, 70, 9}, Dims{1}}, Way{{40, 9}, {}}, Way{{2, 3, 4, 5}, Dims{1, 3}}}) {
    CAPTURE(way.shape);
    check_op({.name = "logsumexp",
              .inputs = {way.shape},
              .op = [&](const Variables& v) { return logsumexp(v[0], way.axes); },
              .reference =
                  [&](const References& in) {
                    Reference powers = in[0];
                    for (double& value : powers.values) value = std::exp(value);
                    const Tensor sums = sum(powers.tensor(f64, Device::cpu()), way.axes);
                    Reference r = Reference::of(sums);
                    for (double& value : r.values) value = std::log(value);
                    return r;
                  },
              .low = -3,
              .high = 3});
  }
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> rows = {-inf, -inf, -inf, inf,    1,      -inf,   nan,   2,   inf,
                                   1000, 1000, -inf, -1e30F, -1e30F, -1e30F, -1000, inf, -1000};
  const Tensor x = Tensor::from<float>(rows, {6, 3}).to(test_device());
  for (const bool across : {false, true}) {
    const Tensor y =
        across ? logsumexp(contiguous(x.transpose(0, 1)), Dims{0}) : logsumexp(x, Dims{1});
    const std::vector<double> found = Reference::of(y).values;
    CHECK(found[0] == -inf);
    CHECK(found[1] == inf);
    CHECK(std::isnan(found[2]));
    CHECK(found[3] == doctest::Approx(1000 + std::log(2)));
    CHECK(found[4] == doctest::Approx(-1e30));
    CHECK(found[5] == inf);
  }
  CHECK(logsumexp(Tensor::empty({2, 0}, f32, test_device()), Dims{1}).numel() == 2);
}

TEST_CASE("var and argmax over axes apart make no copy of their operand") {
  const int64_t n = int64_t{1} << 20;
  const Tensor x = full({64, 8, n / 512}, 1, f32, test_device());
  const auto check = [&](const char* name, const auto& reduction) {
    CAPTURE(name);
    const PeakMemory peak(test_device());
    reduction();
    CHECK(peak.bytes() < n);
  };
  check("var", [&] { var(x, Dims{0, 2}); });
  check("stddev", [&] { stddev(x, Dims{0, 2}); });
  check("argmax", [&] { argmax(x, Dims{0, 2}); });
}
