#pragma once
/** @file Element conversions of the CPU kernels: every type goes through float but float and
 * double. */
#include <bs/lib/half.h>

#include <cstddef>
#include <type_traits>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace bs::cpu {

/** @brief The type that values of type T are computed in: float for the 16-bit ones. */
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T, class In>
T to(In x) {
  if constexpr (std::is_same_v<T, In> || std::is_floating_point_v<In>) {
    return static_cast<T>(x);
  } else {
    return static_cast<T>(static_cast<float>(x));
  }
}

template <class T, class Out>
Out from(T x) {
  if constexpr (std::is_floating_point_v<Out>) {
    return static_cast<Out>(x);
  } else {
    return Out(static_cast<float>(x));
  }
}

/** @brief Converts a contiguous row. A scalar F16C conversion does not vectorise by itself. */
template <class T, class In>
inline void widen(std::ptrdiff_t n, const In* src, T* dst) {
  std::ptrdiff_t i = 0;
#ifdef __F16C__
  if constexpr (std::is_same_v<In, half> && std::is_same_v<T, float>) {
    for (; i + 8 <= n; i += 8) {
      const auto* bits = reinterpret_cast<const __m128i_u*>(src + i);
      _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(bits)));
    }
  }
#endif
  for (; i < n; ++i) dst[i] = to<T>(src[i]);
}

/** @brief The way back, rounded to nearest even. */
template <class T, class Out>
inline void narrow(std::ptrdiff_t n, const T* src, Out* dst) {
  std::ptrdiff_t i = 0;
#ifdef __F16C__
  if constexpr (std::is_same_v<Out, half> && std::is_same_v<T, float>) {
    for (; i + 8 <= n; i += 8) {
      const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i_u*>(dst + i), bits);
    }
  }
#endif
  for (; i < n; ++i) dst[i] = from<T, Out>(src[i]);
}

}  // namespace bs::cpu
