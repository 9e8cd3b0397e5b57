#include <bs/autograd/pixel_shuffle.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// Calls f(channels, pixels) with the places of each element in [n, c r r, h, w], [n, c, h r, w r].
template <class F>
void for_each_place(const Shape& shape, size_t r, F&& f) {
  const auto n = static_cast<size_t>(shape[0]), c = static_cast<size_t>(shape[1]) / (r * r),
             h = static_cast<size_t>(shape[2]), w = static_cast<size_t>(shape[3]);
  for (size_t image = 0; image < n; ++image)
    for (size_t k = 0; k < c; ++k)
      for (size_t y = 0; y < h * r; ++y)
        for (size_t x = 0; x < w * r; ++x) {
          const size_t channel = k * r * r + y % r * r + x % r;
          f(((image * c * r * r + channel) * h + y / r) * w + x / r,
            ((image * c + k) * h * r + y) * w * r + x);
        }
}

}  // namespace

TEST_CASE("pixel_shuffle and back") {
  for (const int64_t r : {1, 2, 3}) {
    const Shape channels{2, 2 * r * r, 3, 4}, pixels{2, 2, 3 * r, 4 * r};
    check_op({.name = "pixel_shuffle",
              .inputs = {channels},
              .op = [r](const Variables& v) { return pixel_shuffle(v[0], r); },
              .reference =
                  [&](const References& in) {
                    Reference y(pixels);
                    for_each_place(channels, static_cast<size_t>(r),
                                   [&](size_t from, size_t to) { y[to] = in[0][from]; });
                    return y;
                  }});
    check_op({.name = "pixel_unshuffle",
              .inputs = {pixels},
              .op = [r](const Variables& v) { return pixel_unshuffle(v[0], r); },
              .reference =
                  [&](const References& in) {
                    Reference y(channels);
                    for_each_place(channels, static_cast<size_t>(r),
                                   [&](size_t to, size_t from) { y[to] = in[0][from]; });
                    return y;
                  }});
  }
}

TEST_CASE("pixel_shuffle: one image, many leading axes, nothing, and what does not fit") {
  const auto make = [](const Shape& shape) { return zeros(shape, f32, test_device()); };
  CHECK(pixel_shuffle(make({4, 3, 5}), 2).shape() == Shape{1, 6, 10});
  CHECK(pixel_unshuffle(make({1, 6, 10}), 2).shape() == Shape{4, 3, 5});
  CHECK(pixel_shuffle(make({1, 2, 1, 2, 1, 4, 3, 5}), 2).shape() == Shape{1, 2, 1, 2, 1, 1, 6, 10});
  CHECK(pixel_shuffle(make({0, 4, 3, 5}), 2).shape() == Shape{0, 1, 6, 10});
  CHECK(pixel_unshuffle(make({2, 0, 4, 4}), 2).shape() == Shape{2, 0, 2, 2});
  CHECK_THROWS_WITH_AS(pixel_shuffle(make({6, 3, 5}), 2),
                       "pixel_shuffle: 6 channels of [6, 3, 5] are no multiple of 2 squared",
                       Error);
  CHECK_THROWS_WITH_AS(pixel_unshuffle(make({6, 3, 5}), 2),
                       "pixel_unshuffle: rows and columns of [6, 3, 5] are no multiples of 2",
                       Error);
  CHECK_THROWS_WITH_AS(pixel_shuffle(make({3, 5}), 2),
                       "pixel_shuffle: shape [3, 5] is not [..., channels, rows, columns]", Error);
  CHECK_THROWS_WITH_AS(pixel_shuffle(make({4, 3, 5}), 0), "pixel_shuffle: a factor of 0", Error);
}
