#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/row_pieces.h>
#include <bs/kernels/cpu/window_taps.h>
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

  /// For planes of `width` columns and p x q windows.
  PaddedRows(const PoolWindows& o, int64_t width, int64_t p, int64_t q)
      : o_(o), width_(width), size_(row_size(o, width, q)) {
    values_.assign(static_cast<size_t>(rows(o, p) * size_), -std::numeric_limits<W>::infinity());
  }
  /// Whether they take little memory, or not much more than a plane: lanes without a window reach
  /// far where strides are long.
  static bool are_small(const PoolWindows& o, int64_t height, int64_t width, int64_t p, int64_t q) {
    constexpr int64_t little = 1 << 16;
    return rows(o, p) * row_size(o, width, q) <= std::max(little, 4 * height * width);
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
  static int64_t rows(const PoolWindows& o, int64_t p) {
    return (std::min(lines, p) - 1) * o.stride.h + (o.kernel.h - 1) * o.dilation.h + 1;
  }
  static int64_t row_size(const PoolWindows& o, int64_t width, int64_t q) {
    const int64_t reach = (round_up(q, vector) - 1) * o.stride.w;
    return std::max(reach + (o.kernel.w - 1) * o.dilation.w + 1, o.padding.w + width);
  }

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
      PaddedRows<Wide<T>> rows(o, x.size(2), p, q);
      while (begin < end) {
        const int64_t first = begin % p,
                      last = std::min({p, first + end - begin, first + rows.lines});
        rows.read(from + begin / p * of_image, h, first, last);
        for (int64_t line = first; line < last; ++line, ++begin)
          pool_plane(o, rows, h, line, q, to + begin * q, from_winner(winners, begin * q));
      }
    };
    const bool by_planes = c == 1 && PaddedRows<Wide<T>>::are_small(o, h, x.size(2), p, q);
    by_planes ? parallel_for(y.size(0) * p, grain, planes)
              : parallel_for(y.size(0) * p, grain, channels);
  });
}

}  // namespace bs::cpu
