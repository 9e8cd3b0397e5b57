// xtensor computes the same on the host, by code that shares nothing with ours: an independent
// reference for what orders, sums, repeats and rearranges elements.
#include <bs/autograd/rearrange.h>
#include <bs/interop/xtensor.h>
#include <bs/kernels.h>
#include <doctest/doctest.h>

#include <limits>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xhistogram.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xpad.hpp>
#include <xtensor/xset_operation.hpp>
#include <xtensor/xsort.hpp>
#include <xtensor/xview.hpp>

using namespace bs;

namespace {

const std::vector<Shape> shapes = {{1}, {7}, {1031}, {3, 5}, {4, 1, 6}, {2, 3, 4, 5}, {65, 33}};
const std::vector<Shape> matrices = {{1, 1}, {3, 5}, {6, 4}, {17, 17}};

/// Whole numbers of which many are equal.
Tensor tied(const Shape& shape) { return cast(floor(mul(randn(shape, f64), 2)), i64); }

/// Compares with an expression of xtensor; sums may differ by the rounding of so many steps.
template <class T, class Expression>
void check(const Tensor& ours, const Expression& expression, double steps = 0) {
  const xt::xarray<T> expected = expression;
  REQUIRE(ours.dtype() == dtype_of<T>);
  REQUIRE(ours.numel() == static_cast<int64_t>(expected.size()));
  for (int axis = 0; axis < ours.rank(); ++axis)
    REQUIRE(ours.size(axis) == static_cast<int64_t>(expected.shape(static_cast<size_t>(axis))));
  const Tensor dense = contiguous(ours);
  const xt::xarray<T> found = to_xtensor<T>(dense);
  const double tolerance = steps * std::numeric_limits<double>::epsilon();
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto a = static_cast<double>(found.flat(i)), b = static_cast<double>(expected.flat(i));
    if (std::abs(a - b) > tolerance * std::max(1.0, std::abs(b))) FAIL(i, ": ", a, " is not ", b);
  }
}

/// Calls f(x, x as xtensor has it, axis) for all shapes and axes.
template <class F>
void for_each_axis(const F& f) {
  for (const Shape& shape : shapes) {
    const Tensor x = randn(shape, f64);
    const auto view = to_xtensor<double>(x);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      CAPTURE(to_string(shape));
      CAPTURE(axis);
      f(x, view, axis);
    }
  }
}

std::vector<size_t> one(int axis) { return {static_cast<size_t>(axis)}; }

}  // namespace

TEST_CASE("xtensor orders elements alike") {
  for_each_axis([](const Tensor& x, const auto& view, int axis) {
    check<double>(sort(x, axis).values, xt::sort(view, axis));
    check<int64_t>(argsort(x, axis), xt::cast<int64_t>(xt::argsort(view, axis)));
    check<double>(amax(x, axis), xt::amax(view, one(axis)));
    check<double>(amin(x, axis), xt::amin(view, one(axis)));
    if (x.rank() == 1) return;  // xtensor 0.24 takes the least of a vector for the largest
    check<int64_t>(argmax(x, axis), xt::cast<int64_t>(xt::argmax(view, axis)));
    check<int64_t>(argmin(x, axis), xt::cast<int64_t>(xt::argmin(view, axis)));
  });
  for (const Shape& shape : shapes) {
    const Tensor x = tied(shape);
    const auto view = to_xtensor<int64_t>(x);
    check<int64_t>(unique(x).values, xt::unique(view));
    for (int axis = 0; axis < shape.rank(); ++axis)
      check<int64_t>(sort(x, axis).values, xt::sort(view, axis));
    const Tensor counted = sub(x, amin(x));
    const Tensor row = contiguous(counted.view({counted.numel()}));
    check<int64_t>(bincount(row), xt::cast<int64_t>(xt::bincount(to_xtensor<int64_t>(row))));
    const Tensor steps = unique(x).values;
    check<int64_t>(searchsorted(steps, row),
                   xt::cast<int64_t>(xt::searchsorted(to_xtensor<int64_t>(steps),
                                                      to_xtensor<int64_t>(row), true)));
  }
}

TEST_CASE("xtensor sums and multiplies alike") {
  for_each_axis([](const Tensor& x, const auto& view, int axis) {
    const auto n = static_cast<double>(x.size(axis));
    check<double>(sum(x, axis), xt::sum(view, one(axis)), 4 * n);
    check<double>(mean(x, axis), xt::mean(view, one(axis)), 4 * n);
    check<double>(cumsum(x, axis), xt::cumsum(view, axis), 4 * n);
    check<double>(prod(x, axis), xt::prod(view, one(axis)), 4 * n);
    check<double>(cumprod(x, axis), xt::cumprod(view, axis), 4 * n);
    check<double>(var(x, axis, false, 0), xt::variance(view, one(axis)), 4 * n);
    check<double>(stddev(x, axis, false, 0), xt::stddev(view, one(axis)), 4 * n);
    if (n > 1) check<double>(var(x, axis), xt::variance(view, one(axis), 1), 4 * n);
  });
  for (const Shape& shape : shapes) {
    const Tensor x = tied(shape);
    const auto view = to_xtensor<int64_t>(x);
    check<int64_t>(sum(x), xt::sum(view));
    for (int axis = 0; axis < shape.rank(); ++axis) {
      check<int64_t>(cumsum(x, axis), xt::cumsum(view, axis));
      check<int64_t>(cumprod(x, axis), xt::cumprod(view, axis));
      check<int64_t>(prod(x, axis), xt::prod(view, one(axis)));
    }
  }
}

TEST_CASE("xtensor rearranges and repeats alike") {
  for_each_axis([](const Tensor& x, const auto& view, int axis) {
    check<double>(flip(x, {axis}), xt::flip(view, static_cast<size_t>(axis)));
    for (const int64_t shift : {0, 1, -2, 40}) {
      const int64_t n = x.size(axis), inside = (shift % n + n) % n;  // xtensor's must be
      check<double>(roll(x, shift, axis), xt::roll(view, inside, axis));
    }
    const xt::xarray<double> copy = view;  // repeat takes no adaptor
    check<double>(repeat_interleave(x, 3, axis), xt::repeat(copy, 3, static_cast<size_t>(axis)));
    std::vector<size_t> counts(static_cast<size_t>(x.rank()), 1);
    Dims ours;
    for (int a = 0; a < x.rank(); ++a) ours.push_back(a == axis ? 3 : 2);
    for (int a = 0; a < x.rank(); ++a)
      counts[static_cast<size_t>(a)] = static_cast<size_t>(ours[a]);
    check<double>(tile(x, ours), xt::tile(view, counts));
    check<double>(concat({x, neg(x)}, axis),
                  xt::concatenate(xt::xtuple(view, -view), static_cast<size_t>(axis)));
    check<double>(stack({x, neg(x)}, axis),
                  xt::stack(xt::xtuple(view, -view), static_cast<size_t>(axis)));
  });
}

TEST_CASE("xtensor cuts triangles and diagonals alike") {
  for (const Shape& shape : matrices) {
    const Tensor x = randn(shape, f64);
    const auto view = to_xtensor<double>(x);
    CAPTURE(to_string(shape));
    for (const int diagonal : {-2, -1, 0, 1, 3}) {
      CAPTURE(diagonal);
      check<double>(tril(x, diagonal), xt::tril(view, diagonal));
      check<double>(triu(x, diagonal), xt::triu(view, diagonal));
      const Tensor row = contiguous(x.select(0, 0));
      check<double>(diag(row, diagonal), xt::diag(to_xtensor<double>(row), diagonal));
    }
    check<double>(diag(x), xt::diagonal(view));
  }
}

TEST_CASE("xtensor spans grids alike") {
  const Tensor a = randn({4}, f64), b = randn({3}, f64), c = randn({5}, f64);
  const std::vector<Tensor> ours = meshgrid({a, b, c});
  const auto x = to_xtensor<double>(a), y = to_xtensor<double>(b), z = to_xtensor<double>(c);
  const auto theirs = xt::meshgrid(x, y, z);
  check<double>(ours[0], std::get<0>(theirs));
  check<double>(ours[1], std::get<1>(theirs));
  check<double>(ours[2], std::get<2>(theirs));
}

TEST_CASE("xtensor broadcasts and selects alike") {
  const Tensor a = randn({4, 1, 6}, f64), b = randn({3, 1}, f64);
  const auto x = to_xtensor<double>(a), y = to_xtensor<double>(b);
  check<double>(add(mul(a, b), 2), x * y + 2);
  check<double>(maximum(a, b), xt::maximum(x, y));
  check<double>(where(gt(a, b), a, b), xt::where(x > y, x, y));
  check<double>(clamp(a, -.5, .5), xt::clip(x, -.5, .5));
  check<double>(floor(mul(a, 3)), xt::floor(x * 3));
}
