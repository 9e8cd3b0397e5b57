#pragma once
/** @file Mean and squared deviations of columns, by the passes that part_moments.h describes. */
#include <bs/kernels/cpu/part_moments.h>
#include <bs/kernels/cpu/row_pieces.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace bs::cpu {

/** @brief Of each of `width` columns of rows that are `step` apart; width is a number or a
 * constant, of at most 4 vectors. Sums of constant ones stay in registers. */
template <class T, class Width, class W = Wide<T>>
void moments_of_strip(const T* x, const T* first, bool has_base, int64_t rows, int64_t step,
                      Width width, W* mean, W* squares) {
  constexpr int64_t most = 4 * Vector<W>::size;
  alignas(64) W anchors[most], sums[most] = {}, means[most], off[most] = {}, square[most] = {};
  const auto for_rows = [=](const auto& f) {
    for (int64_t r = 0; r < rows; ++r) {
      alignas(64) W buffer[most];
      f(widened(x + r * step, width, buffer));
    }
  };
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) anchors[i] = anchor_of(convert<W>(first[i]));
  for_rows([&](const W* row) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) sums[i] += is_fine<T> ? row[i] - anchors[i] : row[i];
  });
  const auto count = static_cast<W>(rows);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) means[i] = (is_fine<T> ? anchors[i] : W{0}) + sums[i] / count;
  for_rows([&](const W* row) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const W d = row[i] - means[i];
      if constexpr (is_fine<T>) off[i] += d;
      square[i] += d * d;
    }
  });
#pragma omp simd
  for (int64_t i = 0; i < width; ++i)
    means[i] = correct_moments(count, off[i], has_base ? anchors[i] : W{0}, means[i], square[i]);
  std::copy_n(means, width, mean);
  std::copy_n(square, width, squares);
}

/** @brief The same of up to `most` columns, whose rows are read from end to end, four at a time. */
template <class T, class W = Wide<T>>
struct LongRowMoments {
  static constexpr int64_t most = 1024;
  alignas(64) W anchors[most], means[most], off[most];

  template <int count, class F>
  static void for_pieces_of(const T* x, int64_t step, int64_t columns, const F& f) {
    for_pieces(columns, [&](int64_t begin, auto length) {
      RowPieceBuffer<T> buffers[count];
      const W* in[count];
      for (int k = 0; k < count; ++k) in[k] = buffers[k].read(x + k * step + begin, length);
      f(std::integral_constant<int, count>{}, in, begin, length);
    });
  }
  template <class F>
  static void for_rows(const T* x, int64_t rows, int64_t step, int64_t columns, const F& f) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) for_pieces_of<4>(x + r * step, step, columns, f);
    for (; r < rows; ++r) for_pieces_of<1>(x + r * step, step, columns, f);
  }
  void find(const T* x, const T* first, bool has_base, int64_t rows, int64_t step, int64_t columns,
            W* __restrict mean, W* __restrict squares) {
    for (W* const sums : {means, off, squares}) std::fill_n(sums, columns, W{0});
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) anchors[i] = anchor_of(convert<W>(first[i]));
    for_rows(x, rows, step, columns,
             [this](auto count, const W* const* in, int64_t begin, auto length) {
#pragma omp simd
               for (int64_t i = 0; i < length; ++i) {
                 const W anchor = is_fine<T> ? anchors[begin + i] : W{0};
                 W sum = means[begin + i];
                 for (int k = 0; k < count; ++k) sum += in[k][i] - anchor;
                 means[begin + i] = sum;
               }
             });
    const auto n = static_cast<W>(rows);
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i)
      means[i] = (is_fine<T> ? anchors[i] : W{0}) + means[i] / n;
    for_rows(x, rows, step, columns,
             [this, squares](auto count, const W* const* in, int64_t begin, auto length) {
#pragma omp simd
               for (int64_t i = 0; i < length; ++i) {
                 const W mean_of = means[begin + i];
                 W sum = off[begin + i], square = squares[begin + i];
                 for (int k = 0; k < count; ++k) {
                   const W d = in[k][i] - mean_of;
                   sum += d;
                   square += d * d;
                 }
                 if constexpr (is_fine<T>) off[begin + i] = sum;
                 squares[begin + i] = square;
               }
             });
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i)
      mean[i] = correct_moments(n, off[i], has_base ? anchors[i] : W{0}, means[i], squares[i]);
  }
};

/** @brief Of each of `columns` columns of rows >= 1 that are `step` apart. The row `first` has the
 * anchors, which are the bases where there are some. */
template <class T, class W = Wide<T>>
void moments_of_columns(const T* x, const T* first, bool has_base, int64_t rows, int64_t step,
                        int64_t columns, W* mean, W* squares) {
  constexpr int64_t size = Vector<W>::size, narrow = 128;
  int64_t at = 0;
  // Long rows are read from end to end, as memory is fast at. Half a vector is slow to widen.
  if (columns >= narrow || (!is_fine<T> && columns % (2 * size) != 0)) {
    LongRowMoments<T> of;
    for (; at < columns; at += of.most)
      of.find(x + at, first + at, has_base, rows, step, std::min(of.most, columns - at), mean + at,
              squares + at);
    return;
  }
  const auto strip = [&](auto width) {
    moments_of_strip(x + at, first + at, has_base, rows, step, width, mean + at, squares + at);
    at += width;
  };
  const auto strips_of = [&](auto width) {
    while (at + width <= columns) strip(width);
  };
  strips_of(std::integral_constant<int64_t, 4 * size>{});
  strips_of(std::integral_constant<int64_t, 2 * size>{});
  strips_of(std::integral_constant<int64_t, size>{});
  if (at < columns) strip(columns - at);
}

}  // namespace bs::cpu
