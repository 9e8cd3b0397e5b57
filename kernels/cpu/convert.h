#pragma once
/** @file Element conversions of the CPU kernels: every type goes through float but float and
 * double. */
#include <bs/lib/half.h>

#include <cstddef>
#include <type_traits>

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
      bs::detail::Halves8 bits;
      __builtin_memcpy(&bits, src + i, sizeof bits);
      const bs::detail::Floats8 values = bs::detail::floats_of(bits);
      __builtin_memcpy(dst + i, &values, sizeof values);
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
      bs::detail::Floats8 values;
      __builtin_memcpy(&values, src + i, sizeof values);
      const bs::detail::Halves8 bits = bs::detail::halves_of(values);
      __builtin_memcpy(static_cast<void*>(dst + i), &bits, sizeof bits);
    }
  }
#endif
  for (; i < n; ++i) dst[i] = from<T, Out>(src[i]);
}

}  // namespace bs::cpu
