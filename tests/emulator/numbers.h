#pragma once
/** @file Numbers of less than 32 bits as PTX has them, each with conversions that round to even. */
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace bs::emulator {

/** @brief f16. */
struct Half {
  uint16_t bits;

  Half() = default;
  explicit Half(float value) : bits(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  explicit operator float() const { return _cvtsh_ss(bits); }
};

/** @brief bf16; every NaN is the one that PTX gives. */
struct Brain {
  uint16_t bits;

  Brain() = default;
  explicit Brain(float value) {
    const auto all = std::bit_cast<uint32_t>(value);
    const uint32_t to_even = 0x7fff + (all >> 16 & 1);
    bits = std::isnan(value) ? uint16_t{0x7fff} : static_cast<uint16_t>((all + to_even) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

/** @brief f32 of which tensor cores read 10 bits behind the point. */
struct Tensor32 {
  uint32_t bits;

  explicit operator float() const { return std::bit_cast<float>(bits & 0xffffe000U); }
};

/** @brief e5m2: 5 bits of exponent, 2 behind the point, the upper byte of an f16. */
struct E5m2 {
  uint8_t bits;

  E5m2() = default;
  /** @brief What is too large becomes the largest, 57344. */
  explicit E5m2(float value) {
    constexpr float largest = 57344, smallest_normal = 0x1p-14F;
    float size = std::min(std::abs(value), 2 * largest);
    int exponent = 0;
    std::frexp(std::max(size, smallest_normal), &exponent);
    const float unit = std::ldexp(1.0F, exponent - 3);
    size = std::min(largest, std::nearbyint(size / unit) * unit);
    const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
    const uint8_t number =
        std::isnan(value) ? uint8_t{0x7f} : static_cast<uint8_t>(Half(size).bits >> 8);
    bits = sign | number;
  }
  explicit operator float() const { return _cvtsh_ss(static_cast<uint16_t>(bits << 8)); }
};

/** @brief e4m3: 4 bits of exponent, 3 behind the point, no infinity. */
struct E4m3 {
  uint8_t bits;

  E4m3() = default;
  /** @brief What is too large becomes the largest, 448. */
  explicit E4m3(float value) {
    constexpr float largest = 448, smallest_normal = 0x1p-6F;
    const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
    float size = std::abs(value);
    if (std::isnan(value)) {
      bits = sign | 0x7f;
      return;
    }
    int exponent = 0;
    std::frexp(std::max(size, smallest_normal), &exponent);
    const float unit = std::ldexp(1.0F, exponent - 4);
    size = std::min(largest, std::nearbyint(std::min(size, 2 * largest) / unit) * unit);
    if (size < smallest_normal) {
      bits = static_cast<uint8_t>(sign | static_cast<uint8_t>(size / 0x1p-9F));
      return;
    }
    std::frexp(size, &exponent);
    const float rest = size / std::ldexp(1.0F, exponent - 1) - 1;
    bits = static_cast<uint8_t>(sign | (exponent + 6) << 3 | static_cast<int>(rest * 8));
  }
  explicit operator float() const {
    const int exponent = bits >> 3 & 15, rest = bits & 7;
    float size = exponent == 0 ? std::ldexp(static_cast<float>(rest), -9)
                               : std::ldexp(1 + static_cast<float>(rest) / 8, exponent - 7);
    if ((bits & 0x7f) == 0x7f) size = NAN;
    return (bits & 0x80) != 0 ? -size : size;
  }
};

/** @brief Two in a register of 32 bits, or of 64. */
template <class T>
struct Pair {
  T low, high;
};

template <class T>
inline constexpr bool is_pair = false;
template <class T>
inline constexpr bool is_pair<Pair<T>> = true;
/** @brief Whether T is computed with as a float. */
template <class T>
inline constexpr bool is_narrow = std::is_same_v<T, Half> || std::is_same_v<T, Brain> ||
                                  std::is_same_v<T, E4m3> || std::is_same_v<T, Tensor32>;

/** @brief f of numbers, computed in float where they are narrow, each half by itself of pairs. */
template <class T, class F, class... More>
T elementwise(const F& f, T x, More... more) {
  if constexpr (is_pair<T>) {
    return T{elementwise(f, x.low, more.low...), elementwise(f, x.high, more.high...)};
  } else if constexpr (is_narrow<T>) {
    return T(static_cast<float>(f(static_cast<float>(x), static_cast<float>(more)...)));
  } else {
    return f(x, more...);
  }
}

}  // namespace bs::emulator
