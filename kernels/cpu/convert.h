#pragma once
/** @file Element conversions of the CPU kernels: every type goes through float but float and
 * double. */
#include <bs/lib/half.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace bs::detail {

#ifdef __F16C__
// Vectors anywhere in memory. Copied there by memcpy, they would go through the stack.
typedef float LooseFloats8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef short LooseHalves8 __attribute__((vector_size(16), aligned(2), may_alias));
#endif

/// A bfloat16's bits for those of a float, as bfloat16 rounds: in a form that vectorises.
inline uint16_t bfloat16_bits(uint32_t u) {
  const uint32_t rounded = u + 0x7fffU + ((u >> 16) & 1U);
  const uint32_t quiet = u | 0x400000U;
  // Chosen in 32 bits: narrowed before, both would be widened again for the comparison's mask.
  return static_cast<uint16_t>(((u & 0x7fffffffU) > 0x7f800000U ? quiet : rounded) >> 16);
}

}  // namespace bs::detail

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

/** @brief Converts a contiguous row. Neither a scalar F16C conversion nor a class of 16 bits
 *  vectorises by itself. */
template <class T, class In>
inline void widen(std::ptrdiff_t n, const In* src, T* dst) {
  std::ptrdiff_t i = 0;
  if constexpr (std::is_same_v<In, bfloat16> && std::is_same_v<T, float>) {
    const auto* bits = reinterpret_cast<const uint16_t*>(src);
#pragma omp simd
    for (i = 0; i < n; ++i) dst[i] = std::bit_cast<float>(uint32_t{bits[i]} << 16);
    return;
  }
#ifdef __F16C__
  if constexpr (std::is_same_v<In, half> && std::is_same_v<T, float>) {
    for (; i + 8 <= n; i += 8)
      *reinterpret_cast<bs::detail::LooseFloats8*>(dst + i) =
          bs::detail::floats_of(*reinterpret_cast<const bs::detail::LooseHalves8*>(src + i));
  }
#endif
  for (; i < n; ++i) dst[i] = to<T>(src[i]);
}

/** @brief The way back, rounded to nearest even. */
template <class T, class Out>
inline void narrow(std::ptrdiff_t n, const T* src, Out* dst) {
  std::ptrdiff_t i = 0;
  if constexpr (std::is_same_v<Out, bfloat16> && std::is_same_v<T, float>) {
    auto* bits = reinterpret_cast<uint16_t*>(dst);
#pragma omp simd
    for (i = 0; i < n; ++i) bits[i] = bs::detail::bfloat16_bits(std::bit_cast<uint32_t>(src[i]));
    return;
  }
#ifdef __F16C__
  if constexpr (std::is_same_v<Out, half> && std::is_same_v<T, float>) {
    for (; i + 8 <= n; i += 8)
      *reinterpret_cast<bs::detail::LooseHalves8*>(dst + i) =
          bs::detail::halves_of(*reinterpret_cast<const bs::detail::LooseFloats8*>(src + i));
  }
#endif
  for (; i < n; ++i) dst[i] = from<T, Out>(src[i]);
}

}  // namespace bs::cpu
