#pragma once
/** @file Floats by their rank, for choosing among them. */
#include <bs/kernels/distribution.h>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace bs::cpu {

/** @brief Floats as integers of the same order: -infinity is 0, and NaN of either sign lies above
 *  infinity. The largest integer is one instruction a vector; that of floats loses NaN. */
template <class T>
struct Ranks {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  using Signed = std::make_signed_t<Bits>;
  static constexpr Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  static constexpr Bits first = (Bits{1} << (precision(dtype_of<T>) - 1)) - 1;

  /** @brief A float's bits. No loop that casts a class of 16 bits to them vectorises. */
  static Bits bits_of(T x) {
    if constexpr (std::is_arithmetic_v<T>) {
      return std::bit_cast<Bits>(x);
    } else {
      return x.bits;
    }
  }
  /** @brief The rank of a float of bits b, and the way back. */
  static Bits of(Bits b) {
    const auto negative = static_cast<Bits>(static_cast<Signed>(b) >> (8 * sizeof(T) - 1));
    return static_cast<Bits>((b ^ (negative | sign)) - first);
  }
  static Bits bits(Bits rank) {
    const auto order = static_cast<Bits>(rank + first);
    return static_cast<Bits>(order & sign ? order ^ sign : ~order);
  }
};

/** @brief The largest of `count` floats, or the smallest; NaN if there is one. By rank. */
template <bool largest, class T>
T extreme_of(const T* x, int64_t count) {
  using Bits = typename Ranks<T>::Bits;
  constexpr Bits flip = largest ? 0 : Ranks<T>::sign;
  Bits top = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Bits rank = Ranks<T>::of(static_cast<Bits>(Ranks<T>::bits_of(x[i]) ^ flip));
    top = rank > top ? rank : top;
  }
  return std::bit_cast<T>(static_cast<Bits>(Ranks<T>::bits(top) ^ flip));
}

}  // namespace bs::cpu
