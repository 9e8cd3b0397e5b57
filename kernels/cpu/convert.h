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

/// Vectors anywhere in memory. Copied there by memcpy, they would go through the stack.
template <class T, int lanes>
struct Loose {
  using Lane = std::conditional_t<std::is_same_v<T, half>, short, T>;
  typedef Lane type __attribute__((vector_size(sizeof(T) * lanes), aligned(sizeof(T)), may_alias));
};

/// Converts whole vectors of [i, n) from or to f16; where they end.
template <int lanes, class From, class To>
std::ptrdiff_t convert_vectors(std::ptrdiff_t i, std::ptrdiff_t n, const From* src, To* dst) {
  using Read = typename Loose<From, lanes>::type;
  using Written = typename Loose<To, lanes>::type;
  for (; i + lanes <= n; i += lanes) {
    if constexpr (std::is_same_v<From, half>) {
      *reinterpret_cast<Written*>(dst + i) = floats_of(*reinterpret_cast<const Read*>(src + i));
    } else {
      *reinterpret_cast<Written*>(dst + i) = halves_of(*reinterpret_cast<const Read*>(src + i));
    }
  }
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

#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && defined(__F16C__)
/// Rounds a vector likewise. The instruction takes subnormal numbers for zeros.
inline void round_vector(const float* src, uint16_t* dst) {
  constexpr int lanes = 16, subnormal = 0x20;
  const Floats16 values = *reinterpret_cast<const Loose<float, lanes>::type*>(src);
  if (__builtin_ia32_fpclassps512_mask(values, subnormal, -1) != 0) [[unlikely]] {
    for (int i = 0; i < lanes; ++i) dst[i] = bfloat16_bits(std::bit_cast<uint32_t>(values[i]));
    return;
  }
  Halves16 bits;
  asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(values));
  *reinterpret_cast<Loose<half, lanes>::type*>(dst) = bits;
}
#endif

}  // namespace bs::detail

namespace bs::cpu {

/** @brief The type that values of type T are computed in: float for the 16-bit ones. */
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

/** @brief A value of another type. Float holds every 16-bit value exactly; f64 narrows through it
 *  too, as in PyTorch. A value that no integer of the type is, NaN too, becomes what the processor
 *  makes of it. */
template <class To, class From>
__attribute__((no_sanitize("float-cast-overflow"))) To convert(From x) {
  constexpr bool through_float = !std::is_arithmetic_v<From> || !std::is_arithmetic_v<To>;
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (through_float) {
    return static_cast<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

/** @brief Converts a contiguous row, rounded to nearest even. Neither a scalar F16C conversion nor
 *  a class of 16 bits vectorises by itself. */
template <class From, class To>
inline void convert_row(std::ptrdiff_t n, const From* src, To* dst) {
  if constexpr (std::is_same_v<From, bfloat16> && std::is_same_v<To, float>) {
    const auto* bits = reinterpret_cast<const uint16_t*>(src);
#pragma omp simd
    for (std::ptrdiff_t i = 0; i < n; ++i) dst[i] = std::bit_cast<float>(uint32_t{bits[i]} << 16);
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, bfloat16>) {
    auto* bits = reinterpret_cast<uint16_t*>(dst);
    std::ptrdiff_t rest = n;
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && defined(__F16C__)
    constexpr std::ptrdiff_t lanes = 16;
    rest = n % lanes;
    for (std::ptrdiff_t i = 0; i < n - rest; i += lanes)
      bs::detail::round_vector(src + i, bits + i);
#endif
#pragma omp simd
    for (std::ptrdiff_t i = n - rest; i < n; ++i)
      bits[i] = bs::detail::bfloat16_bits(std::bit_cast<uint32_t>(src[i]));
  } else {
    std::ptrdiff_t i = 0;
#ifdef __F16C__
    if constexpr ((std::is_same_v<From, half> && std::is_same_v<To, float>) ||
                  (std::is_same_v<From, float> && std::is_same_v<To, half>)) {
#ifdef __AVX512F__
      i = bs::detail::convert_vectors<16>(i, n, src, dst);
#endif
      i = bs::detail::convert_vectors<8>(i, n, src, dst);
    }
#endif
    for (; i < n; ++i) dst[i] = convert<To>(src[i]);
  }
}

/** @brief A row as it is computed. */
template <class T, class In>
inline void widen(std::ptrdiff_t n, const In* src, T* dst) {
  convert_row(n, src, dst);
}
/** @brief The way back. */
template <class T, class Out>
inline void narrow(std::ptrdiff_t n, const T* src, Out* dst) {
  convert_row(n, src, dst);
}

}  // namespace bs::cpu
