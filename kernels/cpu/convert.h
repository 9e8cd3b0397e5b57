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
#ifdef __AVX512F__
using Floats16 [[gnu::vector_size(64)]] = float;
using Halves16 [[gnu::vector_size(32)]] = short;

inline Halves16 halves_of(Floats16 values) {
  return __builtin_ia32_vcvtps2ph512_mask(values, 0, Halves16{}, -1);
}
inline Floats16 floats_of(Halves16 bits) {
  constexpr int rounding_at_hand = 4;
  return __builtin_ia32_vcvtph2ps512_mask(bits, Floats16{}, -1, rounding_at_hand);
}
#endif

// Vectors anywhere in memory. Copied there by memcpy, they would go through the stack.
template <int lanes>
struct Loose {
  typedef float Floats __attribute__((vector_size(4 * lanes), aligned(4), may_alias));
  typedef short Halves __attribute__((vector_size(2 * lanes), aligned(2), may_alias));
};

/// Converts whole vectors of [i, n); where they end.
template <int lanes>
std::ptrdiff_t widen_halves(std::ptrdiff_t i, std::ptrdiff_t n, const half* src, float* dst) {
  using V = Loose<lanes>;
  for (; i + lanes <= n; i += lanes)
    *reinterpret_cast<typename V::Floats*>(dst + i) =
        floats_of(*reinterpret_cast<const typename V::Halves*>(src + i));
  return i;
}
template <int lanes>
std::ptrdiff_t narrow_halves(std::ptrdiff_t i, std::ptrdiff_t n, const float* src, half* dst) {
  using V = Loose<lanes>;
  for (; i + lanes <= n; i += lanes)
    *reinterpret_cast<typename V::Halves*>(dst + i) =
        halves_of(*reinterpret_cast<const typename V::Floats*>(src + i));
  return i;
}
#endif

/// A bfloat16's bits for those of a float, as bfloat16 rounds: in a form that vectorises.
inline uint16_t bfloat16_bits(uint32_t u) {
  const uint32_t rounded = u + 0x7fffU + ((u >> 16) & 1U);
  const uint32_t quiet = u | 0x400000U;
  // Chosen in 32 bits: narrowed before, both would be widened again for the comparison's mask.
  const auto value = std::bit_cast<float>(u);
  return static_cast<uint16_t>((value != value ? quiet : rounded) >> 16);
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
#ifdef __AVX512F__
    i = bs::detail::widen_halves<16>(i, n, src, dst);
#endif
    i = bs::detail::widen_halves<8>(i, n, src, dst);
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
#ifdef __AVX512F__
    i = bs::detail::narrow_halves<16>(i, n, src, dst);
#endif
    i = bs::detail::narrow_halves<8>(i, n, src, dst);
  }
#endif
  for (; i < n; ++i) dst[i] = from<T, Out>(src[i]);
}

}  // namespace bs::cpu
