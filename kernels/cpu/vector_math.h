#pragma once
/** @file Elementary functions for loops over arrays: free of branches and calls in float, so that
 * the compiler turns a loop over them into vector code. In double they are the standard library's.
 *
 *  Errors in float, over all arguments: exp, log and tanh within 1.5 ulp, expm1 within 1.6, log1p
 *  and sigmoid within 2.5.
 *  Infinities, NaN, zeros and subnormal results are those of the standard functions. The
 * polynomials of exp, log and tanh are those of the Cephes library (S. L. Moshier). */
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace bs::cpu::math {

inline double exp(double x) { return std::exp(x); }
inline double log(double x) { return std::log(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/** @brief e^r - 1 for |r| <= log(2) / 2. */
inline float expm1_near_zero(float r) {
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  return p * (r * r) + r;
}
/** @brief e^r likewise. */
inline float exp_near_zero(float r) { return expm1_near_zero(r) + 1.0F; }

/** @brief e^x: x = n log 2 + r with |r| <= log(2) / 2, then 2^n times a polynomial in r. */
inline float exp(float x) {
  x = x > 89.0F ? 89.0F : x;  // beyond, the result is infinite; comparisons let NaN through
  x = x < -104.0F ? -104.0F : x;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const float shifted = x * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - 0x4b400000;
  // log 2 in two parts: the first product is exact
  const float p = exp_near_zero(x - n * 0.693359375F - n * -2.12194440e-4F);
  // 2^n as two factors, since n may lie outside the range of one float's exponent.
  const int32_t half = exponent >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23);
  const float high = std::bit_cast<float>((exponent - half + 127) << 23);
  return p * low * high;
}

/** @brief log x: x = 2^n m with m in [sqrt(1/2), sqrt(2)), then n log 2 plus a polynomial in m - 1.
 */
inline float log(float x) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const bool subnormal = x < 0x1p-126F;
  // Unsigned, for the bits of a negative x wrap around; its result is replaced below.
  const auto bits = std::bit_cast<uint32_t>(subnormal ? x * 0x1p23F : x);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3U) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0F;
  const auto n = static_cast<float>(exponent - (subnormal ? 23 : 0));
  const float square = m * m;
  float p = 7.0376836292e-2F;
  p = p * m - 1.1514610310e-1F;
  p = p * m + 1.1676998740e-1F;
  p = p * m - 1.2420140846e-1F;
  p = p * m + 1.4249322787e-1F;
  p = p * m - 1.6668057665e-1F;
  p = p * m + 2.0000714765e-1F;
  p = p * m - 2.4999993993e-1F;
  p = p * m + 3.3333331174e-1F;
  p = p * m * square + n * -2.12194440e-4F - 0.5F * square;
  float y = m + p + n * 0.693359375F;
  y = x == 0.0F ? -infinity : y;
  y = x < 0.0F ? std::numeric_limits<float>::quiet_NaN() : y;
  return x < infinity ? y : x;  // infinity and NaN stay what they are
}

/** @brief log(1 + x): log of the rounded 1 + x, corrected for what was rounded. */
inline float log1p(float x) {
  const float u = 1.0F + x;
  const float y = u == 1.0F ? x : log(u) * (x / (u - 1.0F));
  return x < std::numeric_limits<float>::infinity() ? y : x;
}

/** @brief e^x - 1 = 2^n (e^r - 1) + (2^n - 1) with r as in exp; beyond 20 it is e^x. */
inline float expm1(float x) {
  const float low = x < -20.0F ? -20.0F : x;  // comparisons let NaN through
  const float small = low > 20.0F ? 20.0F : low;
  const float shifted = small * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float r = small - n * 0.693359375F - n * -2.12194440e-4F;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000U);
  const float y = power * expm1_near_zero(r) + (power - 1.0F);
  return std::copysign(x > 20.0F ? exp(x) : y, x);
}

/** @brief e^x / 2, infinite from 89.07 on and otherwise right for x >= -80: half of 2^n is one
 *  factor for all n there. */
inline float half_exp(float x) {
  const float shifted = x * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float p = exp_near_zero(x - n * 0.693359375F - n * -2.12194440e-4F);
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f000000U);
}

/** @brief An odd polynomial near zero, 1 - 2 / (e^2x + 1) elsewhere. */
inline float tanh(float x) {
  const float size = std::fabs(x);
  const float square = x * x;
  float p = -5.70498872745e-3F;
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  p = p * square * x + x;
  const float most = size > 10.0F ? 10.0F : size;  // beyond it is 1; comparisons let NaN through
  const float far = 1.0F - 1.0F / (half_exp(2.0F * most) + 0.5F);
  return std::copysign(size < 0.625F ? p : far, x);
}

/** @brief 1 / (1 + e^-x). */
inline float sigmoid(float x) {
  x = x > 80.0F ? 80.0F : x;  // beyond, the result is 1; comparisons let NaN through
  x = x < -89.5F ? -89.5F : x;
  return 0.5F / (0.5F + half_exp(-x));
}

/** @brief e^x for x <= 0, where nothing overflows: 2^(n + 64) is added to the exponent of the
 *  polynomial, then 2^-64 multiplied, which also rounds to subnormals. */
inline float exp_of_negative(float x) {
  x = x < -104.0F ? -104.0F : x;  // comparisons let NaN through
  constexpr float rounder = 12582912.0F + 64.0F;
  const float shifted = x * 1.44269504F + rounder;
  const float n = shifted - rounder;
  const float p = exp_near_zero(x - n * 0.693359375F - n * -2.12194440e-4F);
  const uint32_t bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  return std::bit_cast<float>(bits) * 0x1p-64F;
}

}  // namespace bs::cpu::math
