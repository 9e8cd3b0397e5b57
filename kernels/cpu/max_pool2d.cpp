#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/max_pool2d.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <type_traits>

namespace bs::cpu {

namespace {

/// Windows of neighbouring channels, or of neighbouring columns of a plane: their best elements,
/// and which those are; -1 before there is one.
template <class W>
struct Lanes {
  static constexpr int64_t most = 128;
  std::array<W, most> best;
  std::array<int32_t, most> winner;

  /// Lane i of [first, last) meets element `number` of its window, in[(i - first) * step].
  template <class T>
  void meet(int64_t first, int64_t last, const T* in, int64_t step, int32_t number) {
    if constexpr (!std::is_same_v<T, W>) {  // conversions beside other work do not vectorise
      if (step == 1 && last > first) {
        std::array<W, most> wide;
        widen(last - first, in, wide.data());
        return meet(first, last, wide.data(), 1, number);
      }
    }
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
      const auto lane = static_cast<size_t>(i);
      const auto v = static_cast<W>(in[(i - first) * step]);
      const bool wins = (winner[lane] < 0) | (v > best[lane]) | (v != v);
      best[lane] = wins ? v : best[lane];
      winner[lane] = wins ? number : winner[lane];
    }
  }
  template <class T>
  void store(int64_t count, T* to, uint8_t* winners) const {
    narrow(count, best.data(), to);
    for (int64_t i = 0; i < count; ++i)
      winners[i] = static_cast<uint8_t>(winner[static_cast<size_t>(i)]);
  }
};

/// Element r of window `at` along an axis, or -1 outside of [0, extent).
int64_t place(int64_t at, int64_t r, int64_t stride, int64_t padding, int64_t dilation,
              int64_t extent) {
  const int64_t i = at * stride - padding + r * dilation;
  return i < extent ? i : -1;
}

/// Row p of windows over the channels of an image.
template <class T, class W = Wide<T>>
void pool_channels(const PoolWindows& o, const Shape& image, int64_t p, int64_t q, const T* in,
                   T* to, uint8_t* winners) {
  const int64_t h = image[1], w = image[2], channels = image[3];
  Lanes<W> lanes;
  for (int64_t at = 0; at < q * channels;
       at += std::min(Lanes<W>::most, channels - at % channels)) {
    const int64_t column = at / channels, c = at % channels;
    const int64_t count = std::min(Lanes<W>::most, channels - c);
    std::fill_n(lanes.winner.data(), count, -1);
    for (int64_t r = 0; r < o.kernel.h; ++r) {
      const int64_t y = place(p, r, o.stride.h, o.padding.h, o.dilation.h, h);
      for (int64_t s = 0; s < o.kernel.w && y >= 0; ++s) {
        const int64_t x = place(column, s, o.stride.w, o.padding.w, o.dilation.w, w);
        if (x >= 0)
          lanes.meet(0, count, in + (y * w + x) * channels + c, 1,
                     static_cast<int32_t>(r * o.kernel.w + s));
      }
    }
    lanes.store(count, to + at, winners + at);
  }
}

/// Row p of windows over a plane.
template <class T, class W = Wide<T>>
void pool_plane(const PoolWindows& o, const Shape& image, int64_t p, int64_t q, const T* in, T* to,
                uint8_t* winners) {
  const int64_t h = image[1], w = image[2], stride = o.stride.w;
  Lanes<W> lanes;
  for (int64_t at = 0; at < q; at += Lanes<W>::most) {
    const int64_t count = std::min(Lanes<W>::most, q - at);
    std::fill_n(lanes.winner.data(), count, -1);
    for (int64_t r = 0; r < o.kernel.h; ++r) {
      const int64_t y = place(p, r, o.stride.h, o.padding.h, o.dilation.h, h);
      for (int64_t s = 0; s < o.kernel.w && y >= 0; ++s) {
        const int64_t shift = at * stride - o.padding.w + s * o.dilation.w;  // of lane 0
        const int64_t first = shift >= 0 ? 0 : ceil_div(-shift, stride);
        const int64_t last = shift < w ? std::min(count, ceil_div(w - shift, stride)) : 0;
        if (first >= last) continue;
        const T* row = in + y * w + shift + first * stride;
        const auto number = static_cast<int32_t>(r * o.kernel.w + s);
        if (stride == 1) {
          lanes.meet(first, last, row, 1, number);
        } else if (stride == 2) {
          lanes.meet(first, last, row, 2, number);
        } else {
          lanes.meet(first, last, row, stride, number);
        }
      }
    }
    lanes.store(count, to + at, winners + at);
  }
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
      for (int64_t line = begin; line < end; ++line) {
        const T* image = from + line / p * of_image;
        const int64_t at = line * q * c;
        (c == 1 ? pool_plane<T> : pool_channels<T>)(o, x.shape(), line % p, q, image, to + at,
                                                    winners + at);
      }
    });
  });
}

/// Windows hand their gradients out in order, image by image, each to the element that won it.
void max_pool2d_backward(const PoolWindows& o, const Tensor& dy, const Tensor& winner,
                         const Tensor& dx, Stream) {
  visit_floating("max_pool2d_backward", dx.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t p = dy.size(1), q = dy.size(2), c = dy.size(3), w = dx.size(2);
    const int64_t of_image = dx.numel() / dx.size(0);
    const T* from = dy.data<T>();
    const auto* winners = winner.data<uint8_t>();
    T* to = dx.data<T>();
    std::array<int64_t, 256> element;  // of a window, by its number, from the window's first
    for (int64_t i = 0; i < o.kernel.h * o.kernel.w; ++i)
      element[static_cast<size_t>(i)] =
          (i / o.kernel.w * o.dilation.h * w + i % o.kernel.w * o.dilation.w) * c;
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / of_image);
    parallel_for(dx.size(0), grain, [&](int64_t begin, int64_t end) {
      RowBuffer<T> image(of_image);
      RowBuffer<T> line(q * c);
      for (int64_t n = begin; n < end; ++n) {
        W* sums = image.target(to + n * of_image);
        std::fill_n(sums, of_image, W{0});
        for (int64_t row = 0; row < p; ++row) {
          const int64_t at = (n * p + row) * q * c;
          const W* slopes = line.read(from + at, q * c);
          const uint8_t* numbers = winners + at;
          for (int64_t column = 0; column < q; ++column) {
            const int64_t first =
                ((row * o.stride.h - o.padding.h) * w + column * o.stride.w - o.padding.w) * c;
            for (int64_t k = 0; k < c; ++k)
              sums[first + k + element[numbers[column * c + k]]] += slopes[column * c + k];
          }
        }
        image.write(to + n * of_image, of_image);
      }
    });
  });
}

}  // namespace bs::cpu
