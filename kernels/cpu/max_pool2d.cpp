#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/row_pieces.h>
#include <bs/kernels/max_pool2d.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace bs::cpu {

namespace {

/// The winners from `at` on, where there are some.
uint8_t* from_winner(uint8_t* winners, int64_t at) {
  return winners == nullptr ? nullptr : winners + at;
}

/// Element r of window `at` along an axis, or -1 outside of [0, extent).
int64_t place(int64_t at, int64_t r, int64_t stride, int64_t padding, int64_t dilation,
              int64_t extent) {
  const int64_t i = at * stride - padding + r * dilation;
  return i < extent ? i : -1;
}

/// An element of a window.
struct Tap {
  int64_t from;  ///< its first channel, from the window's first element
  int32_t number;
};

/// The elements of a window that lie in an image of channels: most windows have the same.
class Taps {
 public:
  Taps(const PoolWindows& o, const Shape& image)
      : o_(o), height_(image[1]), width_(image[2]), channels_(image[3]) {}

  /// Those of window (p, column), whose first element is at `origin`.
  std::span<const Tap> of(int64_t p, int64_t column, int64_t& origin) {
    const int64_t top = p * o_.stride.h - o_.padding.h, left = column * o_.stride.w - o_.padding.w;
    origin = (top * width_ + left) * channels_;
    const Range rows(top, o_.kernel.h, o_.dilation.h, height_);
    const Range columns(left, o_.kernel.w, o_.dilation.w, width_);
    if (rows != rows_ || columns != columns_) list(rows, columns);
    return {taps_.data(), count_};
  }

 private:
  /// Elements [begin, end) of a window along an axis.
  struct Range {
    int64_t begin = 0, end = 0;

    Range() = default;
    Range(int64_t first, int64_t kernel, int64_t dilation, int64_t extent) : end(kernel) {
      if (first < 0) begin = ceil_div(-first, dilation);
      if (first + (kernel - 1) * dilation >= extent) end = ceil_div(extent - first, dilation);
    }
    bool operator==(const Range&) const = default;
  };

  void list(const Range& rows, const Range& columns) {
    rows_ = rows;
    columns_ = columns;
    count_ = 0;
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int64_t s = columns.begin; s < columns.end; ++s)
        taps_[count_++] = {(r * o_.dilation.h * width_ + s * o_.dilation.w) * channels_,
                           static_cast<int32_t>(r * o_.kernel.w + s)};
  }

  PoolWindows o_;
  int64_t height_, width_, channels_;
  Range rows_, columns_;
  size_t count_ = 0;
  std::array<Tap, 256> taps_;
};

/// The maxima of up to a piece of channels over the elements of a window.
template <class T, class Count>
void pool_piece(std::span<const Tap> window, const T* in, int64_t origin, Count count, T* to,
                uint8_t* winners) {
  using W = Wide<T>;
  RowPieceBuffer<T> buffer;
  alignas(64) std::array<W, piece> top;
  alignas(64) std::array<int32_t, piece> winner;
  top.fill(-std::numeric_limits<W>::infinity());
  winner.fill(window[0].number);
  for (const Tap tap : window) {  // a copy: by reference g++ chooses addresses, and gathers
    const W* const v = buffer.read(in + (origin + tap.from), count);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const auto lane = static_cast<size_t>(i);
      const bool wins = (v[i] > top[lane]) | (v[i] != v[i]);
      top[lane] = wins ? v[i] : top[lane];
      winner[lane] = wins ? tap.number : winner[lane];
    }
  }
  narrow(count, top.data(), to);
  if (winners == nullptr) return;
  std::array<uint8_t, piece> numbers;
  for (size_t i = 0; i < piece; ++i) numbers[i] = static_cast<uint8_t>(winner[i]);
  std::copy_n(numbers.data(), count, winners);
}

/// Row p of windows over the channels of an image.
template <class T>
void pool_channels(Taps& taps, int64_t p, int64_t q, int64_t channels, const T* in, T* to,
                   uint8_t* winners) {
  for (int64_t column = 0; column < q; ++column) {
    int64_t origin = 0;
    const std::span<const Tap> window = taps.of(p, column, origin);
    const int64_t at = column * channels;
    for_pieces(channels, [&](int64_t c, auto count) {
      pool_piece(window, in, origin + c, count, to + at + c, from_winner(winners, at + c));
    });
  }
}

/// Rows of a plane, each with what its windows meet before and behind it: minus infinity. Lanes
/// beyond the last window, up to whole vectors, meet the same.
template <class W>
class PaddedRows {
 public:
  static constexpr int64_t vector = 16, lines = 16;

  PaddedRows(const PoolWindows& o, int64_t width, int64_t windows) : o_(o), width_(width) {
    const int64_t reach = (round_up(windows, vector) - 1) * o.stride.w;
    const int64_t size = reach + (o.kernel.w - 1) * o.dilation.w + 1;
    size_ = std::max(size, o.padding.w + width);
    const int64_t rows = (lines - 1) * o.stride.h + (o.kernel.h - 1) * o.dilation.h + 1;
    values_.assign(static_cast<size_t>(rows * size_), -std::numeric_limits<W>::infinity());
  }
  /// Takes in the rows that lines [first, last) of windows meet: `lines` of them at most. Before
  /// these are used, so that no load has to wait for a part of it to be stored.
  template <class T>
  void read(const T* plane, int64_t height, int64_t first, int64_t last) {
    from_ = std::max<int64_t>(0, first * o_.stride.h - o_.padding.h);
    const int64_t behind =
        (last - 1) * o_.stride.h - o_.padding.h + (o_.kernel.h - 1) * o_.dilation.h + 1;
    for (int64_t y = from_; y < std::min(height, behind); ++y)
      widen(width_, plane + y * width_, values_.data() + (y - from_) * size_ + o_.padding.w);
  }
  const W* row(int64_t y) const { return values_.data() + (y - from_) * size_; }

 private:
  PoolWindows o_;
  int64_t width_, size_ = 0, from_ = 0;
  std::vector<W> values_;
};

/// The first element of window (p, column) that lies in the image.
int32_t first_inside(const PoolWindows& o, int64_t p, int64_t column) {
  const auto first = [](int64_t at, int64_t stride, int64_t padding, int64_t dilation) {
    return ceil_div(std::max<int64_t>(0, padding - at * stride), dilation);
  };
  const int64_t r = first(p, o.stride.h, o.padding.h, o.dilation.h);
  const int64_t s = first(column, o.stride.w, o.padding.w, o.dilation.w);
  return static_cast<int32_t>(r * o.kernel.w + s);
}

/// Windows [at, at + vector) of row p over a plane, whose columns are `step` apart. Of a constant
/// number and, where it is 1 or 2, a constant step, they stay in registers.
template <class W, class Step>
void pool_vector(const PoolWindows& o, const PaddedRows<W>& rows, int64_t h, int64_t p, int64_t at,
                 Step step, W* best, int32_t* winner) {
  constexpr int64_t vector = PaddedRows<W>::vector;
  std::array<W, vector> top{};
  std::array<int32_t, vector> number_of_top;
  number_of_top.fill(-1);
  for (int64_t r = 0; r < o.kernel.h; ++r) {
    const int64_t y = place(p, r, o.stride.h, o.padding.h, o.dilation.h, h);
    if (y < 0) continue;
    const W* row = rows.row(y) + at * step;
    for (int64_t s = 0; s < o.kernel.w; ++s) {
      const auto number = static_cast<int32_t>(r * o.kernel.w + s);
#pragma omp simd
      for (size_t i = 0; i < vector; ++i) {
        const W v = row[s * o.dilation.w + static_cast<int64_t>(i) * step];
        const bool wins = (number_of_top[i] < 0) | (v > top[i]) | (v != v);
        top[i] = wins ? v : top[i];
        number_of_top[i] = wins ? number : number_of_top[i];
      }
    }
  }
  std::copy_n(top.data(), vector, best);
  std::copy_n(number_of_top.data(), vector, winner);
}

/// Row p of windows over a plane.
template <class T, class W>
void pool_plane(const PoolWindows& o, const PaddedRows<W>& rows, int64_t h, int64_t p, int64_t q,
                T* to, uint8_t* winners) {
  constexpr int64_t vector = PaddedRows<W>::vector, most = 128;
  std::array<W, most> best;
  std::array<int32_t, most> winner;
  for (int64_t at = 0; at < q; at += most) {
    const int64_t count = std::min(most, q - at);
    for (int64_t i = 0; i < count; i += vector) {
      const auto pool = [&](auto step) {
        pool_vector(o, rows, h, p, at + i, step, best.data() + i, winner.data() + i);
      };
      switch (o.stride.w) {
        case 1:
          pool(std::integral_constant<int64_t, 1>{});
          break;
        case 2:
          pool(std::integral_constant<int64_t, 2>{});
          break;
        default:
          pool(o.stride.w);
      }
    }
    // Where nothing is larger than what lies outside, that may have won.
    for (int64_t i = 0; i < count; ++i)
      if (best[static_cast<size_t>(i)] == -std::numeric_limits<W>::infinity())
        winner[static_cast<size_t>(i)] = first_inside(o, p, at + i);
    narrow(count, best.data(), to + at);
    for (int64_t i = 0; i < count && winners != nullptr; ++i)
      winners[at + i] = static_cast<uint8_t>(winner[static_cast<size_t>(i)]);
  }
}

}  // namespace

void max_pool2d(const PoolWindows& o, const Tensor& x, const Tensor& y, const Tensor& winner,
                Stream) {
  visit_floating("max_pool2d", x.dtype(), [&]<class T>(Type<T>) {
    const int64_t h = x.size(1), p = y.size(1), q = y.size(2), c = y.size(3);
    const int64_t of_image = x.numel() / x.size(0);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    auto* winners = winner.defined() ? winner.data<uint8_t>() : nullptr;
    const int64_t grain =
        std::max<int64_t>(1, elementwise_grain / (q * c * o.kernel.h * o.kernel.w));
    const auto channels = [&](int64_t begin, int64_t end) {
      Taps taps(o, x.shape());
      for (int64_t line = begin; line < end; ++line)
        pool_channels(taps, line % p, q, c, from + line / p * of_image, to + line * q * c,
                      from_winner(winners, line * q * c));
    };
    const auto planes = [&](int64_t begin, int64_t end) {
      PaddedRows<Wide<T>> rows(o, x.size(2), q);
      while (begin < end) {
        const int64_t first = begin % p,
                      last = std::min({p, first + end - begin, first + rows.lines});
        rows.read(from + begin / p * of_image, h, first, last);
        for (int64_t line = first; line < last; ++line, ++begin)
          pool_plane(o, rows, h, line, q, to + begin * q, from_winner(winners, begin * q));
      }
    };
    c == 1 ? parallel_for(y.size(0) * p, grain, planes)
           : parallel_for(y.size(0) * p, grain, channels);
  });
}

namespace {

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
