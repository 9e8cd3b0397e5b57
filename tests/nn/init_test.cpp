#include <bs/nn/init.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;
namespace init = bs::nn::init;

namespace {

Tensor uninitialised(const Shape& shape, DType dtype = f32) {
  return Tensor::empty(shape, dtype, test_device());
}

struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};

Moments moments(const Tensor& x) {
  const Reference r = Reference::of(x);
  const auto n = static_cast<double>(r.values.size());
  Moments m{.low = r[0], .high = r[0]};
  for (double v : r.values) {
    m.mean += v / n;
    m.low = std::min(m.low, v);
    m.high = std::max(m.high, v);
  }
  for (double v : r.values) m.deviation += (v - m.mean) * (v - m.mean) / n;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

/// Holds sampled moments against those of the distribution, to four standard errors.
void check_moments(const Tensor& x, double deviation, bool is_uniform) {
  const Moments m = moments(x);
  const double n = std::sqrt(static_cast<double>(x.numel()));
  CHECK(std::abs(m.mean) <= 4 * deviation / n);
  CHECK(std::abs(m.deviation - deviation) <= 4 * deviation / n);
  if (!is_uniform) return;
  const double bound = std::sqrt(3.0) * deviation;
  CHECK(m.low >= -bound);
  CHECK(m.high <= bound);
  CHECK(m.high > 0.99 * bound);
}

}  // namespace

TEST_CASE("init: fans of a weight count further axes to both sides") {
  CHECK(init::fans(uninitialised({5, 3})).in == 3);
  CHECK(init::fans(uninitialised({5, 3})).out == 5);
  CHECK(init::fans(uninitialised({5, 3, 2, 7})).in == 42);
  CHECK(init::fans(uninitialised({5, 3, 2, 7})).out == 70);
  CHECK_THROWS_WITH_AS(init::fans(uninitialised({5})),
                       "init: a weight of shape [5] has no fans; it needs two axes", Error);
}

TEST_CASE("init: constants") {
  for (DType dtype : {f64, f32, f16, bf16}) {
    const Tensor x = uninitialised({3}, dtype);
    init::ones(x);
    CHECK(Reference::of(x).values == std::vector<double>(3, 1.0));
    init::zeros(x);
    CHECK(Reference::of(x).values == std::vector<double>(3, 0.0));
    init::constant(x, -0.5);
    CHECK(Reference::of(x).values == std::vector<double>(3, -0.5));
  }
}

TEST_CASE("init: variances") {
  const Tensor w = uninitialised({300, 200});
  init::xavier_uniform(w, 2);
  check_moments(w, 2 * std::sqrt(2.0 / 500), true);
  init::xavier_normal(w);
  check_moments(w, std::sqrt(2.0 / 500), false);
  init::kaiming_uniform(w);
  check_moments(w, std::sqrt(2.0 / 200), true);
  init::kaiming_normal(w, 1);
  check_moments(w, std::sqrt(1.0 / 200), false);
  init::kaiming_uniform(w, std::sqrt(5.0));
  CHECK(moments(w).high <= 1 / std::sqrt(200.0));
  CHECK(moments(w).high > 0.99 / std::sqrt(200.0));
  init::uniform(w, 2, 3);
  CHECK(moments(w).low >= 2);
  CHECK(moments(w).high < 3);
  init::normal(w, 7, 0.5);
  CHECK(std::abs(moments(w).mean - 7) < 0.02);
}

TEST_CASE("init: a generator decides what is drawn") {
  const Tensor a = uninitialised({4, 4}), b = uninitialised({4, 4}), c = uninitialised({4, 4});
  Generator one(7), two(7);
  init::normal(a, 0, 1, one);
  init::normal(b, 0, 1, two);
  init::normal(c, 0, 1, two);
  CHECK(Reference::of(a).values == Reference::of(b).values);
  CHECK(Reference::of(b).values != Reference::of(c).values);
}

TEST_CASE("init: orthogonal rows or columns, whichever are fewer") {
  for (const Shape& shape : {Shape{5, 9}, Shape{9, 5}, Shape{6, 6}, Shape{4, 2, 3}, Shape{1, 1}}) {
    const Tensor w = uninitialised(shape, f64);
    init::orthogonal(w, 2);
    const Reference r = Reference::of(w);
    const auto rows = static_cast<size_t>(shape[0]);
    const size_t cols = r.values.size() / rows;
    const bool wide = rows <= cols;
    const auto entry = [&](size_t vector, size_t i) {
      return wide ? r[vector * cols + i] : r[i * cols + vector];
    };
    for (size_t a = 0; a < std::min(rows, cols); ++a)
      for (size_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (size_t i = 0; i < std::max(rows, cols); ++i) dot += entry(a, i) * entry(b, i);
        CHECK(std::abs(dot - (a == b ? 4 : 0)) < 1e-13);
      }
  }
  const Tensor rounded = uninitialised({8, 8}, bf16);
  init::orthogonal(rounded);
  CHECK(std::abs(moments(rounded).deviation - std::sqrt(1.0 / 8)) < 0.05);
  CHECK_THROWS_WITH_AS(init::orthogonal(uninitialised({5})),
                       "init: orthogonal needs two axes, not [5]", Error);
}

TEST_CASE("init: nothing to fill is no mistake") {
  const Tensor none = uninitialised({0, 4});
  init::xavier_uniform(none);
  init::kaiming_normal(uninitialised({4, 0}));
  init::orthogonal(none);
  init::zeros(none);
}
