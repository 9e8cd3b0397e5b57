#pragma once
/** @file Mean and squared deviations of as many elements as stay in a cache, in two passes.
 *
 *  Sums are of distances from an anchor, which is one of the elements: equal ones have none. The
 *  second pass sums the deviations besides. They tell how far off the mean is (Chan, Golub,
 * LeVeque, 1983), whose square would stand in the squares else. Means are given less a base: that
 * of parts which are told apart is their anchor, else it is zero. */
#include <bs/kernels/cpu/reduce_terms.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace bs::cpu {

/** @brief Merged as by Chan, Golub and LeVeque (1979). */
template <class W>
struct Moments {
  W count = 0, mean = 0, squares = 0;

  void merge(W other_count, W other_mean, W other_squares) {
    const W both = count + other_count, deviation = other_mean - mean;
    const W share = other_count / both;
    // Of no element the square could be infinite, and 0 of it is not.
    const W apart = count == 0 ? W(0) : deviation;
    squares += other_squares + apart * apart * count * share;
    mean += deviation * share;
    count = both;
  }
};

/** @brief The same of a row of slots, whose counts are alike. */
template <class W>
void merge_rows(W count, W other_count, int64_t n, const W* other_mean, const W* other_squares,
                W* mean, W* squares) {
  const W share = other_count / (count + other_count);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const W deviation = other_mean[i] - mean[i];
    squares[i] += other_squares[i] + deviation * deviation * count * share;
    mean[i] += deviation * share;
  }
}

/** @brief What distances are taken from: zero where they could overflow, or are none. */
template <class W>
W anchor_of(W first) {
  return std::abs(first) < std::numeric_limits<W>::max() / 4 ? first : W{0};
}

/** @brief Gives the mean less `base`, where `sum` and `squares` are of the deviations from one that
 * is rounded. Takes what that is off out of the squares. */
template <class W>
W correct_moments(W count, W sum, W base, W rounded, W& squares) {
  constexpr W infinity = std::numeric_limits<W>::infinity();
  const W off = sum / count, less = squares - off * sum;
  squares = squares < infinity ? (less > 0 ? less : W{0}) : squares;  // NaN stays
  return (rounded - base) + (std::abs(off) < infinity ? off : W{0});
}

/** @brief Whether moments of T are found by anchors and by sums of deviations. Those of 16 bits
 * need neither: thousands of equal ones have an exact sum in f32, and others are far apart beside
 * it. */
template <class T>
inline constexpr bool is_fine = std::is_same_v<T, Wide<T>>;

/** @brief Elements of a row that are summed at a time: as many as stay in the first cache. */
inline constexpr int64_t most_of_run = 8192;

/** @brief Moments of n >= 1 elements, at most most_of_run. */
template <class T, class W = Wide<T>>
Moments<W> moments_of_run(const T* x, int64_t n, W anchor, W base) {
  using V = typename Vector<W>::type;
  constexpr int64_t size = Vector<W>::size, vectors = 4, width = vectors * size;
  const auto for_vectors = [=](const auto& f) {
    for (int64_t i = 0; i + width <= n; i += width) {
      alignas(64) W buffer[width];
      const W* wide = widened(x + i, width, buffer);
      for (int64_t k = 0; k < vectors; ++k) {
        V v;
        std::memcpy(&v, wide + k * size, sizeof v);
        f(k, v);
      }
    }
  };
  const auto total = [](const V(&of)[vectors]) {
    return fold_vector<Sum, W>((of[0] + of[1]) + (of[2] + of[3]));
  };
  const int64_t whole = n / width * width;
  const W less = is_fine<T> ? anchor : W{0}, count = static_cast<W>(n);
  W sum = 0, off = 0, square = 0;
  if (whole > 0) {
    V sums[vectors] = {};
    for_vectors([&](int64_t k, V v) { sums[k] += is_fine<T> ? v - less : v; });
    sum = total(sums);
  }
  for (int64_t i = whole; i < n; ++i) sum += convert<W>(x[i]) - less;
  const W mean = less + sum / count;
  if (whole > 0) {
    V deviations[vectors] = {}, squares[vectors] = {};
    for_vectors([&](int64_t k, V v) {
      const V d = v - mean;
      if constexpr (is_fine<T>) deviations[k] += d;
      squares[k] += d * d;
    });
    if constexpr (is_fine<T>) off = total(deviations);
    square = total(squares);
  }
  for (int64_t i = whole; i < n; ++i) {
    const W d = convert<W>(x[i]) - mean;
    if constexpr (is_fine<T>) off += d;
    square += d * d;
  }
  const W less_base = correct_moments(count, off, base, mean, square);
  return {count, less_base, square};
}

/** @brief The same of a row of any length >= 1, whose base is zero. */
template <class T, class W = Wide<T>>
Moments<W> moments_of_row(const T* x, int64_t n) {
  const W anchor = anchor_of(convert<W>(x[0]));
  Moments<W> all = moments_of_run(x, std::min(most_of_run, n), anchor, W{0});
  for (int64_t begin = most_of_run; begin < n; begin += most_of_run) {
    const auto run = moments_of_run(x + begin, std::min(most_of_run, n - begin), anchor, W{0});
    all.merge(run.count, run.mean, run.squares);
  }
  return all;
}

}  // namespace bs::cpu
