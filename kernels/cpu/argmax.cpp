#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/ranks.h>
#include <bs/kernels/cpu/reduce_terms.h>
#include <bs/kernels/reduce_kinds.h>

#include <algorithm>
#include <limits>

namespace bs::cpu {

namespace {

/// Where the first of the largest of n floats lies, or of the smallest: which one it is takes less
/// time to find.
template <bool largest, class W, class T>
int64_t place_in_row(const T* x, int64_t n) {
  const W top = convert<W>(extreme_of<largest>(x, n));
  const auto is_top = [top](T e) {
    const W v = convert<W>(e);
    return v == top || (v != v && top != top);
  };
  return std::find_if(x, x + n, is_top) - x;
}

/// The same of elements that are `step` apart. NaN is beyond all others.
template <bool largest, class W, class T>
int64_t place_of_extremum(const T* x, int64_t n, int64_t step) {
  if constexpr (is_floating(dtype_of<T>))
    if (step == 1) return place_in_row<largest, W>(x, n);
  int64_t best = 0;
  W top = term_of<W>(x[0]);
  for (int64_t j = 1; j < n && top == top; ++j) {
    const W v = term_of<W>(x[j * step]);
    if ((largest ? v > top : v < top) || v != v) {
      top = v;
      best = j;
    }
  }
  return best;
}

/// Columns that are looked through side by side, at most and at least.
constexpr int64_t lanes = 64, fewest_lanes = 16;

/// The same of `count` columns, `lanes` at most. Numbers of rows are as wide as what they are
/// chosen by, so that one mask serves both.
template <bool largest, class W, class T>
void places_in_columns(const T* x, int64_t n, int64_t step, int64_t count, int64_t* to) {
  using Place = std::conditional_t<sizeof(W) == 8, int64_t, int32_t>;
  alignas(64) W buffer[lanes], top[lanes];
  alignas(64) Place place[lanes];
  std::fill_n(place, count, 0);
  std::copy_n(widened(x, count, buffer), count, top);
  for (int64_t j = 1; j < n; ++j) {
    const W* const row = widened(x + j * step, count, buffer);
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) {
      const W v = row[c], best = top[c];
      const bool wins = (largest ? v > best : v < best) | ((v != v) & (best == best));
      top[c] = wins ? v : best;
      place[c] = wins ? static_cast<Place>(j) : place[c];
    }
  }
  std::copy_n(place, count, to);
}

template <bool largest>
void places(const char* op, const Tensor& x, const Tensor& y) {
  const int64_t n = x.size(1), inner = x.size(2);
  visit_terms(op, x.dtype(), [&]<class T, class W>(Type<T>, Type<W>) {
    const T* data = elements<T>(x);
    auto* const out = y.data<int64_t>();
    parallel_for(y.numel(), std::max<int64_t>(1, elementwise_grain / n),
                 [=](int64_t begin, int64_t end) {
                   const bool side_by_side =
                       inner >= fewest_lanes && n <= std::numeric_limits<int32_t>::max();
                   for (int64_t i = begin; i < end;) {
                     const T* const from = data + i / inner * n * inner + i % inner;
                     if (!side_by_side) {
                       out[i++] = place_of_extremum<largest, W>(from, n, inner);
                       continue;
                     }
                     const int64_t count = std::min({lanes, inner - i % inner, end - i});
                     places_in_columns<largest, W>(from, n, inner, count, out + i);
                     i += count;
                   }
                 });
  });
}

}  // namespace

void argmax(const Tensor& x, const Tensor& y, Stream) { places<true>("argmax", x, y); }

void argmin(const Tensor& x, const Tensor& y, Stream) { places<false>("argmin", x, y); }

}  // namespace bs::cpu
