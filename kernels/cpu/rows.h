#pragma once
/** @file Rows of any floating type as rows of the type that is computed in: float for 16-bit types,
 *  else the type itself. Loops over such rows vectorise; conversions of 16-bit types inside a loop
 *  with other work often do not. */
#include <bs/lib/half.h>

#include <cstdint>
#include <type_traits>
#include <vector>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace bs::cpu {

/** @brief What values of T are computed and summed in. */
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/** @brief Converts n values. */
inline void widen(const half* from, float* to, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
inline void widen(const bfloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

/** @brief Converts n values, rounding to nearest even. */
inline void narrow(const float* from, half* to, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; ++i) to[i] = half(from[i]);
}
inline void narrow(const float* from, bfloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = bfloat16(from[i]);
}

/** @brief Shows rows of T as rows of Wide<T>: in place where the types agree, else through a buffer
 *  of its own. One for each row in use at a time, and for each thread. */
template <class T>
class RowBuffer {
 public:
  static constexpr bool converts = !std::is_same_v<T, Wide<T>>;

  /** @brief For rows of up to n values. */
  explicit RowBuffer(int64_t n) : values_(converts ? static_cast<size_t>(n) : 0) {}

  /** @brief The row's n values; valid until the next call. */
  const Wide<T>* read(const T* row, int64_t n) {
    if constexpr (converts) {
      widen(row, values_.data(), n);
      return values_.data();
    } else {
      return row;
    }
  }
  /** @brief Where to put the values of `row`, which `write` then brings there. */
  Wide<T>* target(T* row) {
    if constexpr (converts) {
      return values_.data();
    } else {
      return row;
    }
  }
  void write(T* row, int64_t n) const {
    if constexpr (converts) narrow(values_.data(), row, n);
  }

 private:
  std::vector<Wide<T>> values_;
};

}  // namespace bs::cpu
