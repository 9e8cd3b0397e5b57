#pragma once
/** @file Functions for loops over arrays, as in vector_math.h, that few kernels need.
 *
 *  Errors in float: sin and cos within 1.6 ulp, tan within 2.6, erf within 1.1, pow
 *  within 1.2; remainder is exact. */
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu::math {

inline double sin(double x) { return std::sin(x); }
inline double cos(double x) { return std::cos(x); }
inline double tan(double x) { return std::tan(x); }
inline double erf(double x) { return std::erf(x); }

/** @brief An angle as quarter turns and the rest, of at most an eighth. */
struct Turned {
  float rest;
  uint32_t quarters;
};

/** @brief Up to here `turned` loses nothing: quarters have 20 bits, and the first part of pi / 2
 *  has 33 (fdlibm's). */
inline constexpr float most_turned = 0x1p20F;

inline Turned turned(float x) {
  const double v = x;
  // Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits of the sum.
  const double shifted = v * 0.63661977236758134 + 0x1.8p52;
  const double n = shifted - 0x1.8p52;
  const double rest = v - n * 1.57079632673412561417 - n * 6.07710050650619224932e-11;
  return {static_cast<float>(rest), static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted))};
}

/** @brief sin of `quarters` quarter turns and the rest; polynomials of the Cephes library. */
inline float sin_of(Turned t) {
  const float square = t.rest * t.rest;
  float s = -1.9515295891e-4F;
  s = s * square + 8.3321608736e-3F;
  s = s * square - 1.6666654611e-1F;
  s = std::copysign(s * square * t.rest + t.rest, t.rest);
  float c = 2.443315711809948e-5F;
  c = c * square - 1.388731625493765e-3F;
  c = c * square + 4.166664568298827e-2F;
  c = c * square * square - 0.5F * square + 1.0F;
  const float y = (t.quarters & 1) != 0 ? c : s;
  const uint32_t sign = (t.quarters & 2) << 30;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) ^ sign);
}

inline float sin(float x) { return sin_of(turned(x)); }
inline float cos(float x) {
  const Turned t = turned(x);
  return sin_of({t.rest, t.quarters + 1});
}
inline float tan(float x) {
  const Turned t = turned(x);
  const float square = t.rest * t.rest;
  float p = 9.38540185543e-3F;
  p = p * square + 3.11992232697e-3F;
  p = p * square + 2.44301354525e-2F;
  p = p * square + 5.34112807005e-2F;
  p = p * square + 1.33387994085e-1F;
  p = p * square + 3.33331568548e-1F;
  p = p * square * t.rest + t.rest;
  return (t.quarters & 1) != 0 ? -1.0F / p : p;
}

/** @brief An odd polynomial up to 1; beyond, 1 - exp(-x q(x)). Both are minimax polynomials. */
inline float erf(float x) {
  const float size = std::fabs(x), square = x * x;
  float p = 7.8538610869e-5F;
  p = p * square - 8.0101935446e-4F;
  p = p * square + 5.1883276765e-3F;
  p = p * square - 2.6853811930e-2F;
  p = p * square + 1.1283585148e-1F;
  p = p * square - 3.7612625824e-1F;
  p = p * square + 1.283791657e-1F;             // and 1, by which x is multiplied without rounding
  const float far = size > 4.0F ? 4.0F : size;  // comparisons let NaN through
  float q = -1.2579047103e-5F;
  q = q * far + 3.3633856280e-4F;
  q = q * far - 3.6976887672e-3F;
  q = q * far + 2.3879328447e-2F;
  q = q * far - 1.0637359307e-1F;
  q = q * far - 6.3506827174e-1F;
  q = q * far - 1.1286690409F;
  const float y = 1.0F - exp_of_negative(q * far);
  return size < 1.0F ? p * x + x : std::copysign(y, x);
}

inline double pow(double a, double b) { return std::pow(a, b); }

/** @brief Whether `pow` of floats holds: for normal numbers a > 0, and b that is finite. */
inline bool holds_pow(float a, float b) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return a >= 0x1p-126F && a < infinity && std::fabs(b) < infinity;
}
inline bool holds_pow(double, double) { return true; }

/** @brief log2 (2^n m), which is n and (m - 1) times a minimax polynomial, whose relative error is
 *  1e-10; for normal numbers a > 0. */
inline double wide_log2(float a) {
  const auto bits = std::bit_cast<uint32_t>(a);
  const int32_t power = static_cast<int32_t>(bits - 0x3f3504f3U) >> 23;
  const double m = std::bit_cast<float>(bits - (static_cast<uint32_t>(power) << 23)) - 1.0F;
  double p = -0.086345086816449146;
  p = p * m + 0.15485692910235374;
  p = p * m - 0.15698239074605008;
  p = p * m + 0.15900163306177864;
  p = p * m - 0.17904695046359889;
  p = p * m + 0.20609624525930845;
  p = p * m - 0.24050417375935798;
  p = p * m + 0.28854064393392015;
  p = p * m - 0.36067280056041462;
  p = p * m + 0.48089832072481614;
  p = p * m - 0.72134752521311374;
  p = p * m + 1.4426950409393589;
  return static_cast<double>(power) + p * m;
}

/** @brief 2^t, rounded to float. */
inline float exp2_of(double t) {
  t = t > 160 ? 160 : t;
  t = t < -160 ? -160 : t;
  const double shifted = t + 0x1.8p52;
  const auto n = static_cast<int32_t>(std::bit_cast<uint64_t>(shifted));
  const auto rest = static_cast<float>(t - (shifted - 0x1.8p52));
  // 2^n as two factors, since n may lie outside the range of one float's exponent.
  const int32_t half = n >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23);
  const float high = std::bit_cast<float>((n - half + 127) << 23);
  return exp_near_zero(rest * 0.693147181F) * low * high;
}

inline float pow(float a, float b) { return exp2_of(static_cast<double>(b) * wide_log2(a)); }

/** @brief a^b log a, the derivative by b: one logarithm serves both factors. */
inline float pow_log(float a, float b) {
  const double log2 = wide_log2(a);
  return exp2_of(static_cast<double>(b) * log2) * static_cast<float>(log2 * 0.69314718055994531);
}
inline double pow_log(double a, double b) { return std::pow(a, b) * std::log(a); }

/** @brief pow_log for results of 16 bits, where `holds_pow` does: the error relative to the result
 *  is below 5e-7 (1 + |b log2 a|). */
inline float coarse_pow_log(float a, float b) {
  const auto bits = std::bit_cast<uint32_t>(a);
  const int32_t power = static_cast<int32_t>(bits - 0x3f3504f3U) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(power) << 23)) - 1.0F;
  float p = -1.45809785e-01F;
  p = p * m + 2.34041555e-01F;
  p = p * m - 2.48877131e-01F;
  p = p * m + 2.87098812e-01F;
  p = p * m - 3.60239628e-01F;
  p = p * m + 4.80923238e-01F;
  p = p * m - 7.21352788e-01F;
  p = p * m + 1.44269496F;
  const float log2 = static_cast<float>(power) + p * m;
  float t = b * log2;
  t = t > 160.0F ? 160.0F : t;
  t = t < -160.0F ? -160.0F : t;
  constexpr float rounder = 12582912.0F;
  const float shifted = t + rounder;
  const float f = t - (shifted - rounder);
  float e = 1.32764668e-03F;
  e = e * f + 9.67554129e-03F;
  e = e * f + 5.55071329e-02F;
  e = e * f + 2.40221197e-01F;
  e = e * f + 6.93146967e-01F;
  e = e * f + 1.00000007F;
  const int32_t n = std::bit_cast<int32_t>(shifted) - 0x4b400000, half = n >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23);
  const float high = std::bit_cast<float>((n - half + 127) << 23);
  return e * (log2 * 0.693147181F) * low * high;
}

/** @brief Whether `remainder` of floats holds: where the quotient's whole part fits a double. */
inline bool holds_remainder(float a, float b) {
  return std::fabs(a / b) < 0x1p28F && std::fabs(b) < std::numeric_limits<float>::infinity();
}
inline bool holds_remainder(double, double) { return true; }

/** @brief fmod(a, b): the quotient, its whole part and the rest are exact in double. */
inline float remainder(float a, float b) {
  const double of = a, by = b;
  const double rest = of - std::trunc(of / by) * by;
  return std::copysign(static_cast<float>(rest), a);
}
inline double remainder(double a, double b) { return std::fmod(a, b); }

}  // namespace bs::cpu::math
