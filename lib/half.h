#pragma once
/** @file 16-bit floating-point types of the host. Storage types: arithmetic is done in float. */
#include <bit>
#include <cstdint>
#if defined(__F16C__)
#include <bs/lib/f16c.h>
#endif

namespace bs {

namespace detail {
/** @brief binary32 to binary16 in integer arithmetic, for processors without an instruction. */
inline uint16_t round_to_half(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000U;
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U | ((u >> 13) & 0x1ffU));
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {
    // Subnormal: adding 0.5f makes the float adder itself shift and round to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}
/** @brief binary16 to binary32: exact, signalling NaNs become quiet. */
inline float widen_half(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {
    const uint32_t quiet = magnitude > 0x7c00U ? 0x400000U : 0U;  // as the instruction does
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | (magnitude & 0x3ffU) << 13);
  }
  // 2^112 rebias by multiplication handles subnormals as well.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}
}  // namespace detail

/** @brief IEEE binary16, rounded to nearest even. */
struct half {
  uint16_t bits = 0;

  half() = default;
  explicit half(float value) : bits(round(value)) {}
  explicit half(double value) : half(static_cast<float>(value)) {}
  explicit operator float() const { return widen(bits); }
  explicit operator double() const { return static_cast<double>(widen(bits)); }
  static half from_bits(uint16_t b) {
    half h;
    h.bits = b;
    return h;
  }

 private:
  static uint16_t round(float value);
  static float widen(uint16_t bits);
};

/** @brief bfloat16: the upper half of an IEEE binary32, rounded to nearest even. */
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) : bits(round(value)) {}
  explicit bfloat16(double value) : bfloat16(static_cast<float>(value)) {}
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
  static bfloat16 from_bits(uint16_t b) {
    bfloat16 h;
    h.bits = b;
    return h;
  }

 private:
  static uint16_t round(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    const uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    // A NaN must not round up to infinity: keep it quiet, keep its sign.
    return static_cast<uint16_t>(is_nan ? (u >> 16) | 0x40U : rounded);
  }
};

#if defined(__F16C__)
// Equal in every bit to the arithmetic below, also for NaN and subnormal numbers, as the tests of
// this file find by comparing them.
inline uint16_t half::round(float value) { return detail::half_of(value); }
inline float half::widen(uint16_t bits) { return detail::float_of(bits); }
#else
inline uint16_t half::round(float value) { return detail::round_to_half(value); }
inline float half::widen(uint16_t bits) { return detail::widen_half(bits); }
#endif

}  // namespace bs
