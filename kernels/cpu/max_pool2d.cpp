#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/max_pool2d.h>

namespace bs::cpu {

namespace {

/// Calls f(number of the element in its window, first element of its pixel) for the elements of
/// window (p, q) that lie within an image of h x w pixels of c channels.
template <class F>
void for_each_element(const PoolWindows& o, int64_t p, int64_t q, const Shape& image, F&& f) {
  const int64_t h = image[1], w = image[2], c = image[3];
  for (int64_t r = 0; r < o.kernel.h; ++r) {
    const int64_t row = p * o.stride.h - o.padding.h + r * o.dilation.h;
    if (row < 0 || row >= h) continue;
    for (int64_t s = 0; s < o.kernel.w; ++s) {
      const int64_t column = q * o.stride.w - o.padding.w + s * o.dilation.w;
      if (column >= 0 && column < w)
        f(static_cast<uint8_t>(r * o.kernel.w + s), (row * w + column) * c);
    }
  }
}

/// One window of all channels.
template <class T, class Pixel>
void pool_window(const Pixel& for_each, const T* image, int64_t channels, T* best,
                 uint8_t* winner) {
  bool first = true;
  for_each([&](uint8_t number, int64_t at) {
    const T* in = image + at;
    for (int64_t c = 0; c < channels; ++c) {
      const auto v = static_cast<Wide<T>>(in[c]);
      const bool wins = first || v > static_cast<Wide<T>>(best[c]) || v != v;
      best[c] = wins ? in[c] : best[c];
      winner[c] = wins ? number : winner[c];
    }
    first = false;
  });
}

}  // namespace

void max_pool2d(const PoolWindows& o, const Tensor& x, const Tensor& y, const Tensor& winner,
                Stream) {
  visit_floating("max_pool2d", x.dtype(), [&]<class T>(Type<T>) {
    const int64_t p = y.size(1), q = y.size(2), c = y.size(3);
    const int64_t of_image = x.numel() / x.size(0);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    auto* winners = winner.data<uint8_t>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (q * c * o.kernel.h));
    parallel_for(y.size(0) * p, grain, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line)
        for (int64_t column = 0; column < q; ++column) {
          const auto window = [&](auto&& f) {
            for_each_element(o, line % p, column, x.shape(), f);
          };
          const int64_t at = (line * q + column) * c;
          pool_window(window, from + line / p * of_image, c, to + at, winners + at);
        }
    });
  });
}

/// Windows hand their gradients out in order, image by image.
void max_pool2d_backward(const PoolWindows& o, const Tensor& dy, const Tensor& winner,
                         const Tensor& dx, Stream) {
  visit_floating("max_pool2d_backward", dx.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t p = dy.size(1), q = dy.size(2), c = dy.size(3);
    const int64_t of_image = dx.numel() / dx.size(0);
    const T* from = dy.data<T>();
    const auto* winners = winner.data<uint8_t>();
    T* to = dx.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / of_image);
    parallel_for(dx.size(0), grain, [&](int64_t begin, int64_t end) {
      RowBuffer<T> image(of_image);
      for (int64_t n = begin; n < end; ++n) {
        W* sums = image.target(to + n * of_image);
        std::fill_n(sums, of_image, W{0});
        for (int64_t pixel = 0; pixel < p * q; ++pixel) {
          const int64_t at = (n * p * q + pixel) * c;
          for_each_element(o, pixel / q, pixel % q, dx.shape(), [&](uint8_t number, int64_t place) {
            for (int64_t k = 0; k < c; ++k)
              sums[place + k] += winners[at + k] == number ? static_cast<W>(from[at + k]) : W{0};
          });
        }
        image.write(to + n * of_image, of_image);
      }
    });
  });
}

}  // namespace bs::cpu
