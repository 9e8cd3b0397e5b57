#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/row_pieces.h>
#include <bs/kernels/cpu/window_taps.h>
#include <bs/kernels/max_pool2d.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace bs::cpu {

namespace {

/// What winners may be: of each window those of its elements that lie in the image.
class Winners {
 public:
  Winners(const PoolWindows& o, const Tensor& dy, const Tensor& dx)
      : all_(o.kernel.h * o.kernel.w), channels_(dy.size(3)), words_(ceil_div(all_, bits)) {
    Taps taps(o, dx.shape());
    for (int64_t p = 0; p < dy.size(1); ++p)
      for (int64_t column = 0; column < dy.size(2); ++column) {
        int64_t origin = 0;
        const auto first = static_cast<int64_t>(inside_.size());
        inside_.resize(static_cast<size_t>(first + words_));
        for (const Tap tap : taps.of(p, column, origin))
          inside_[static_cast<size_t>(first + tap.number / bits)] |= 1U << tap.number % bits;
      }
  }
  /// Those of an image.
  bool hold(const uint8_t* numbers, int64_t count) const {
    uint8_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; ++i) largest = numbers[i] > largest ? numbers[i] : largest;
    if (largest >= all_) return false;
    if (words_ == 1 && channels_ == 1) return hold_one(numbers, count);
    bool all = true;
    for (int64_t i = 0; i < count; i += channels_) {
      const uint32_t* const window = inside_.data() + i / channels_ * words_;
      all &= words_ == 1 ? hold_small(window[0], numbers + i) : hold_large(window, numbers + i);
    }
    return all;
  }

 private:
  static constexpr int64_t bits = 32;

  /// One channel of windows of up to 32 elements.
  bool hold_one(const uint8_t* numbers, int64_t count) const {
    uint32_t all = 1;
    const uint32_t* const inside = inside_.data();
#pragma omp simd reduction(& : all)
    for (int64_t i = 0; i < count; ++i) all &= inside[i] >> uint32_t{numbers[i]};
    return all != 0;
  }
  /// All channels of such a window.
  bool hold_small(uint32_t inside, const uint8_t* numbers) const {
    uint32_t all = 1;
#pragma omp simd reduction(& : all)
    for (int64_t k = 0; k < channels_; ++k) all &= inside >> uint32_t{numbers[k]};
    return all != 0;
  }
  bool hold_large(const uint32_t* inside, const uint8_t* numbers) const {
    uint32_t all = 1;
    for (int64_t k = 0; k < channels_; ++k) all &= inside[numbers[k] / bits] >> numbers[k] % bits;
    return all != 0;
  }

  int64_t all_, channels_, words_;  ///< words a window
  std::vector<uint32_t> inside_;    ///< a bit for each element of each window
};

/// Where windows and their elements lie in an image.
struct Places {
  std::vector<int64_t> window;            ///< of each, in order; its first may be outside
  std::array<int64_t, 256> element = {};  ///< of a window, by its number, from the window's

  Places(const PoolWindows& o, const Tensor& dy, const Tensor& dx) {
    const int64_t p = dy.size(1), q = dy.size(2), c = dy.size(3), w = dx.size(2);
    window.reserve(static_cast<size_t>(p * q));
    for (int64_t row = 0; row < p; ++row)
      for (int64_t column = 0; column < q; ++column)
        window.push_back(
            ((row * o.stride.h - o.padding.h) * w + column * o.stride.w - o.padding.w) * c);
    for (int64_t i = 0; i < o.kernel.h * o.kernel.w; ++i)
      element[static_cast<size_t>(i)] =
          (i / o.kernel.w * o.dilation.h * w + i % o.kernel.w * o.dilation.w) * c;
  }
};

/// Windows of a plane hand their gradients out in order, each to the element that won it.
template <class W>
void hand_out(const Places& places, const W* slopes, const uint8_t* numbers, W* sums) {
  const size_t windows = places.window.size();
  for (size_t i = 0; i < windows; ++i)
    sums[places.window[i] + places.element[numbers[i]]] += slopes[i];
}

/// The same of `channels` beside each other.
template <class W>
void hand_out(const Places& places, int64_t channels, const W* slopes, const uint8_t* numbers,
              W* sums) {
  for (const int64_t window : places.window) {
    for (int64_t k = 0; k < channels; ++k)
      sums[window + k + places.element[numbers[k]]] += slopes[k];
    slopes += channels;
    numbers += channels;
  }
}

/// The same for a piece of channels of a window: each of its elements takes in what it won.
template <class W>
void hand_out_piece(std::span<const Tap> window, int64_t origin, const W* slopes,
                    const uint8_t* numbers, W* sums) {
  alignas(64) std::array<int32_t, piece> winner;
  for (size_t i = 0; i < piece; ++i) winner[i] = numbers[i];
  for (const Tap tap : window) {
    W* const to = sums + (origin + tap.from);
#pragma omp simd
    for (size_t i = 0; i < piece; ++i) to[i] += winner[i] == tap.number ? slopes[i] : W{0};
  }
}

/// The same of an image whose channels are whole pieces.
template <class W>
void hand_out(const PoolWindows& o, const Shape& outputs, const Shape& image, const W* slopes,
              const uint8_t* numbers, W* sums) {
  Taps taps(o, image);
  for (int64_t p = 0; p < outputs[1]; ++p)
    for (int64_t column = 0; column < outputs[2]; ++column) {
      int64_t origin = 0;
      const std::span<const Tap> window = taps.of(p, column, origin);
      for (int64_t c = 0; c < outputs[3]; c += piece, slopes += piece, numbers += piece)
        hand_out_piece(window, origin + c, slopes, numbers, sums);
    }
}

}  // namespace

void max_pool2d_backward(const PoolWindows& o, const Tensor& dy, const Tensor& winner,
                         const Tensor& dx, Stream) {
  visit_floating("max_pool2d_backward", dx.dtype(), [&]<class T>(Type<T>) {
    const int64_t channels = dx.size(3), images = dx.size(0);
    const int64_t size = dx.numel() / images, outputs = dy.numel() / images;
    const T* from = dy.data<T>();
    const auto* winners = winner.data<uint8_t>();
    T* to = dx.data<T>();
    const Places places(o, dy, dx);
    const Winners valid(o, dy, dx);
    // Larger windows take fewer steps channel by channel.
    const bool by_pieces = channels % piece == 0 && o.kernel.h * o.kernel.w <= 9;
    parallel_for(images, std::max<int64_t>(1, elementwise_grain / size),
                 [&](int64_t begin, int64_t end) {
                   RowBuffer<T> image(size), slopes(outputs);
                   for (int64_t n = begin; n < end; ++n) {
                     auto* sums = image.target(to + n * size);
                     std::fill_n(sums, size, 0);
                     const auto* in = slopes.read(from + n * outputs, outputs);
                     const uint8_t* numbers = winners + n * outputs;
                     BS_CHECK(valid.hold(numbers, outputs),
                              "max_pool2d_backward: winners of image {} of {} lie outside of it", n,
                              dx.shape());
                     if (by_pieces) {
                       hand_out(o, dy.shape(), dx.shape(), in, numbers, sums);
                     } else if (channels == 1) {
                       hand_out(places, in, numbers, sums);
                     } else {
                       hand_out(places, channels, in, numbers, sums);
                     }
                     image.write(to + n * size, size);
                   }
                 });
  });
}

}  // namespace bs::cpu
