// Borders of any axes. Those of images are in resample_test.cpp.
#include <bs/autograd/pad.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/pad_axes.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// Element by element: each place walks back into x one mirror or edge at a time.
Reference padded(const Reference& x, const PadAxesOptions& o) {
  const int rank = x.shape.rank();
  Shape before = Shape::filled(rank, 0), shape = x.shape;
  for (int i = 0; i < o.amounts.rank(); i += 2) {
    before[rank - 1 - i / 2] = o.amounts[i];
    shape[rank - 1 - i / 2] += o.amounts[i] + o.amounts[i + 1];
  }
  Reference y(shape);
  for (size_t flat = 0; flat < y.values.size(); ++flat) {
    int64_t rest = static_cast<int64_t>(flat), at = 0, step = 1;
    bool outside = false;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t n = x.shape[axis];
      int64_t place = rest % shape[axis] - before[axis];
      rest /= shape[axis];
      outside = outside || place < 0 || place >= n;
      while (o.mode != PadMode::constant && (place < 0 || place >= n)) {
        if (o.mode == PadMode::replicate) place = place < 0 ? 0 : n - 1;
        if (o.mode == PadMode::reflect) place = place < 0 ? -place : 2 * (n - 1) - place;
      }
      at += place * step;
      step *= n;
    }
    y[flat] = outside && o.mode == PadMode::constant ? o.value : x[static_cast<size_t>(at)];
  }
  return y;
}

void check_pad(const Shape& shape, const PadAxesOptions& options) {
  CAPTURE(to_string(shape));
  CAPTURE(to_string(options.amounts));
  check_op({.name = "pad",
            .inputs = {shape},
            .op = [&](const Variables& v) { return pad(v[0], options); },
            .reference = [&](const References& x) { return padded(x[0], options); }});
}

}  // namespace

TEST_CASE("pad: a constant around any axes") {
  check_pad({5}, {.amounts = {1, 2}, .value = 0.5});
  check_pad({3, 4}, {.amounts = {0, 0, 2, 1}, .value = -1});
  check_pad({2, 3, 4}, {.amounts = {1, 0, 0, 2, 3, 1}});
  check_pad({2, 1, 2, 3, 2}, {.amounts = {1, 1, 2, 0}, .value = 0.25});
  check_pad({2, 3}, {.amounts = {}});
}

TEST_CASE("pad: negative amounts cut") {
  check_pad({6, 5}, {.amounts = {-1, 2, -2, -3}, .value = 0.5});
  check_pad({4}, {.amounts = {-1, -3}});
}

TEST_CASE("pad: a constant around lines of every length, and views") {
  const std::vector<Dims> borders{{1, 1, 1, 1},   {0, 3},   {8, 0},       {16, 16},
                                  {-1, 2, 1, -1}, {-1, -1}, {0, 0, 1, 1}, {0, 0, 0, 0, 2, 1}};
  for (const DType dtype : {u8, bf16, f32, i64})
    for (const int64_t width : {4, 7, 8, 15, 16, 18, 32, 33, 64})
      for (const Dims& amounts : borders) {
        const PadAxesOptions options{.amounts = amounts, .value = 7};
        Reference x({3, 5, width});
        for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i % 199);
        const Tensor dense = x.tensor(dtype, test_device());
        CAPTURE(width);
        CAPTURE(to_string(amounts));
        REQUIRE(Reference::of(pad(dense, options)).values == padded(x, options).values);
        for (const Tensor& view :
             {dense.transpose(0, 2), dense.transpose(1, 2), dense.slice(2, 1, width),
              dense.slice(2, 0, width, 2), dense.select(0, 1).unsqueeze(0).expand({2, 5, width})})
          REQUIRE(Reference::of(pad(view, options)).values ==
                  padded(Reference::of(view), options).values);
      }
}

TEST_CASE("pad: reflections and replications of any axes") {
  for (const PadMode mode : {PadMode::reflect, PadMode::replicate}) {
    check_pad({5}, {.amounts = {4, 2}, .mode = mode});
    check_pad({2, 6}, {.amounts = {0, 5}, .mode = mode});
    check_pad({2, 3, 4}, {.amounts = {1, 3, 2, 0}, .mode = mode});
    check_pad({1, 2, 3, 2, 4}, {.amounts = {3, 1, 1, 1, 0, 2}, .mode = mode});
    check_pad({2, 3}, {.amounts = {}, .mode = mode});
  }
  check_pad({1, 2}, {.amounts = {7, 9}, .mode = PadMode::replicate});
}

TEST_CASE("pad: images of all widths") {
  for (int64_t width = 2; width < 80; ++width)
    for (const DType dtype : {f64, f32, bf16}) {
      CAPTURE(width);
      Reference x({1, 2, 3, width});
      for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i % 251);
      const Tensor y = pad(x.tensor(dtype, test_device()),
                           PadOptions{.padding = {1, 1, 1, 1}, .mode = PadMode::reflect});
      const PadAxesOptions axes{.amounts = {1, 1, 1, 1}, .mode = PadMode::reflect};
      CHECK(Reference::of(y).values == padded(x, axes).values);
    }
}

TEST_CASE("pad: integers, nothing, and what it refuses") {
  const Tensor x = arange(6, i64, test_device()).view({2, 3});
  CHECK(Reference::of(pad(x, {.amounts = {1, 0}, .value = 7})).values ==
        std::vector<double>{7, 0, 1, 2, 7, 3, 4, 5});
  CHECK(Reference::of(pad(x, {.amounts = {0, 1}, .mode = PadMode::reflect})).values ==
        std::vector<double>{0, 1, 2, 1, 3, 4, 5, 4});
  const Tensor none = zeros({0, 2}, f32, test_device());
  CHECK(pad(none, {.amounts = {1, 1, 2, 0}}).shape() == Shape{2, 4});
  CHECK_THROWS_WITH(pad(x, {.amounts = {1}}),
                    "pad: 1 amounts [1] for the 2 axes of [2, 3]; each axis takes two");
  CHECK_THROWS_WITH(pad(x, {.amounts = {1, 1, 1, 1, 1, 1}}),
                    doctest::Contains("for the 2 axes of [2, 3]"));
  CHECK_THROWS_WITH(pad(x, {.amounts = {-2, -2}}), "pad: -2 and -2 cut more than there is of 3");
  CHECK_THROWS_WITH(pad(x, {.amounts = {3, 0}, .mode = PadMode::reflect}),
                    "pad: 3 and 0 elements cannot be reflected from 3");
  CHECK_THROWS_WITH(pad(x, {.amounts = {-1, 0}, .mode = PadMode::replicate}),
                    "pad: padding -1 and 0 is negative");
  CHECK_THROWS_WITH(pad(none, {.amounts = {0, 0, 1, 0}, .mode = PadMode::replicate}),
                    "pad: there is no element to replicate");
}

TEST_CASE("pad_views takes what lies in y, and refuses places that do not fit") {
  const Tensor y = zeros({4}, f32, test_device());
  const PadViews part = pad_views(Scalar(1), {.inner = {5}, .low = {-3}, .step = {2}}, y);
  CHECK(part.from.shape() == Shape{2});
  CHECK(part.to.shape() == Shape{2});
  CHECK(part.to.strides() == Strides{2});
  CHECK_THROWS_WITH_AS(pad_views(Scalar(1), {.inner = {2}, .low = {0}, .step = {0}}, y),
                       "pad_views: 2 elements from 0 on in steps of 0 on axis 0", Error);
  CHECK_THROWS_WITH_AS(pad_views(Scalar(1), {.inner = {2, 1}, .low = {0}, .step = {1}}, y),
                       "pad_views: shape [2, 1], first places [0] and steps [1] for y of shape [4]",
                       Error);
  CHECK_THROWS_WITH_AS(pad_views(y, {.inner = {2}, .low = {0}, .step = {1}}, y),
                       "pad_views: x of shape [4] for places of shape [2]", Error);
}
