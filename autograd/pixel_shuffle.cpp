#include <bs/autograd/pixel_shuffle.h>

#include <bs/autograd/view.h>

#include <initializer_list>

namespace bs {

namespace {

/// The square of a factor below 2^15 fits an int.
void check(const char* op, const Variable& x, int64_t factor) {
  BS_CHECK(x.rank(op) >= 3, "{}: shape {} is not [..., channels, rows, columns]", op, x.shape());
  BS_CHECK(factor >= 1 && factor < (int64_t{1} << 15), "{}: a factor of {}", op, factor);
}

int64_t times(const char* op, int64_t extent, int64_t factor) {
  int64_t product = 0;
  BS_CHECK(!__builtin_mul_overflow(extent, factor, &product), "{}: {} times {}", op, extent,
           factor);
  return product;
}

/// The extents in front of the last three, with these behind them.
Shape in_front_of(const Shape& shape, std::initializer_list<int64_t> last) {
  Shape all = shape.slice(0, shape.rank() - 3);
  for (const int64_t extent : last) all.push_back(extent);
  return all;
}

}  // namespace

Variable pixel_shuffle(const Variable& x, int64_t factor) {
  check("pixel_shuffle", x, factor);
  const Shape& shape = x.shape();
  const int64_t c = shape[-3] / (factor * factor), h = shape[-2], w = shape[-1];
  BS_CHECK(c * factor * factor == shape[-3],
           "pixel_shuffle: {} channels of {} are no multiple of {} squared", shape[-3], shape,
           factor);
  const int64_t images = shape.slice(0, shape.rank() - 3).product();
  const Variable parts = reshape(x, {images, c, factor, factor, h, w});
  const int64_t rows = times("pixel_shuffle", h, factor),
                columns = times("pixel_shuffle", w, factor);
  return reshape(permute(parts, {0, 1, 4, 2, 5, 3}), in_front_of(shape, {c, rows, columns}));
}

Variable pixel_unshuffle(const Variable& x, int64_t factor) {
  check("pixel_unshuffle", x, factor);
  const Shape& shape = x.shape();
  const int64_t c = shape[-3], h = shape[-2] / factor, w = shape[-1] / factor;
  BS_CHECK(h * factor == shape[-2] && w * factor == shape[-1],
           "pixel_unshuffle: rows and columns of {} are no multiples of {}", shape, factor);
  const int64_t images = shape.slice(0, shape.rank() - 3).product();
  const Variable parts = reshape(x, {images, c, h, factor, w, factor});
  const int64_t channels = times("pixel_unshuffle", c, factor * factor);
  return reshape(permute(parts, {0, 1, 3, 5, 2, 4}), in_front_of(shape, {channels, h, w}));
}

}  // namespace bs
