#pragma once
/** @file The normal distribution for loops over arrays, as the functions of vector_math.h. */
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu::math {

/** @brief Distribution and density of the standard normal. */
template <class W>
struct Normal {
  W cdf, pdf;
};

inline double normal_cdf(double x) { return 0.5 * std::erfc(x * -0.70710678118654752); }
inline Normal<double> normal(double x) {
  return {normal_cdf(x), 0.39894228040143268 * std::exp(-0.5 * x * x)};
}

/** @brief One exponential serves both values. Phi(x) is 1/2 + x p(x^2) near zero, and beyond
 *  Phi(-|x|) = exp(-x^2 / 2) k q(k) with k = 1 / (1 + 0.375 |x|); p and q are minimax polynomials.
 *  q holds up to |x| = 14.5, where the result vanishes; its relative error may grow as 1 + x^2 / 4,
 *  as that of exp's argument does. The error is below 1.2e-7, and relative to the result below
 *  5e-7 for x > -1; further down it grows with x^2. */
inline Normal<float> normal(float x) {
  const float square = x * x;
  float p = -1.09435990e-03F;
  p = p * square + 9.94940288e-03F;
  p = p * square - 6.64883554e-02F;
  p = p * square + 3.98942262e-01F;
  const float e = exp_of_negative(-0.5F * square);
  const float size = std::fabs(x);
  const float k = 1.0F / (1.0F + 0.375F * size);
  float q = 5.64462356e-02F;
  q = q * k - 1.88735336e-01F;
  q = q * k + 1.58034801e-01F;
  q = q * k + 3.65698189e-02F;
  q = q * k + 1.39793068e-01F;
  q = q * k + 1.48266762e-01F;
  q = q * k + 1.49668261e-01F;
  const float tail = e * (q * k);
  const float far = x < 0 ? tail : 1.0F - tail;
  return {size < 0.65F ? 0.5F + p * x : far, 0.398942280F * e};
}

/** @brief Phi(x) alone, as Phi(-|x|) = exp(-x^2 / 2) q(k) for all x, with k = 1 / (2.95 + |x|). The
 *  error is below 2.1e-7, and relative to the result below 5e-7 for x > -1; further down it grows
 *  with x^2. A third less work than normal(). */
inline float normal_cdf(float x) {
  float square = x * x;
  square = square > 212.0F ? 212.0F : square;  // comparisons let NaN through
  constexpr float rounder = 12582912.0F + 64.0F, halved = -0.721347520F;  // of powers of 2
  const float shifted = square * halved + rounder;
  const float f = square * halved - (shifted - rounder);
  float p = 1.32840476e-03F;
  p = p * f + 9.67569463e-03F;
  p = p * f + 5.55068664e-02F;
  p = p * f + 2.40221128e-01F;
  p = p * f + 6.93146944e-01F;
  p = p * f + 1.0F;
  const uint32_t bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  const float k = 1.0F / (2.95F + std::fabs(x));
  constexpr float unit = 0x1p-64F;  // what the rounder added to the exponent
  float q = 93.4762802F * unit;
  q = q * k - 142.901566F * unit;
  q = q * k + 66.4312439F * unit;
  q = q * k - 4.78031921F * unit;
  q = q * k + 4.47852516F * unit;
  q = q * k + 1.07513630F * unit;
  q = q * k + 4.02946085e-01F * unit;
  q = q * k - 6.56034972e-05F * unit;
  const float tail = std::bit_cast<float>(bits) * q;
  return x < 0 ? tail : 1.0F - tail;
}

/** @brief Phi(x) for results of 16 bits, by polynomials of fewer terms than normal() has. The error
 *  relative to the result is below 1e-5 (1 + x^2 / 4). */
inline float coarse_normal_cdf(float x) {
  float power = x * x * -0.721347520F;  // of 2
  power = power < -150.0F ? -150.0F : power;
  constexpr float rounder = 12582912.0F + 64.0F;
  const float shifted = power + rounder;
  const float f = power - (shifted - rounder);
  float p = 9.57010128e-03F;
  p = p * f + 5.59178591e-02F;
  p = p * f + 2.40247443e-01F;
  p = p * f + 6.93121791e-01F;
  p = p * f + 9.99999285e-01F;
  const uint32_t bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  const float k = 1.0F / (1.0F + 0.36F * std::fabs(x));
  float q = -9.40190628e-02F;
  q = q * k + 2.40642324e-01F;
  q = q * k + 5.10142781e-02F;
  q = q * k + 1.60103783e-01F;
  q = q * k + 1.42259732e-01F;
  const float tail = std::bit_cast<float>(bits) * 0x1p-64F * (q * k);
  return x < 0 ? tail : 1.0F - tail;
}

}  // namespace bs::cpu::math
