#pragma once
/** @file Random bits turned into numbers, by arithmetic that gives the same bits on the CPU and on
 *  CUDA. Every product that is added to something is an explicit fma, so that no compiler has a
 *  contraction left to choose. fma, division and square root are rounded correctly on both. */
#include <bs/lib/check.h>
#include <bs/lib/dtype.h>
#include <bs/lib/philox.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace bs {

/** @brief Bits of precision of a floating dtype. */
constexpr int precision(DType dtype) {
  return dtype == f64 ? 53 : dtype == f32 ? 24 : dtype == f16 ? 11 : 8;
}

/** @brief 64 random bits of two words. */
BS_HOST_DEVICE inline uint64_t join(unsigned high, unsigned low) {
  return uint64_t{high} << 32 | low;
}

/** @brief A multiple of 2^-digits in [0, 1), from the upper bits of `bits`. */
template <int digits>
BS_HOST_DEVICE constexpr double unit_interval(uint64_t bits) {
  static_assert(digits <= 53, "a double holds no more");
  return static_cast<double>(static_cast<int64_t>(bits >> (64 - digits))) *
         (1.0 / static_cast<double>(int64_t{1} << digits));
}

/** @brief One of 0 .. range-1: the upper 64 bits of the product bits * range. */
BS_HOST_DEVICE inline uint64_t below(uint64_t bits, uint64_t range) {
  const uint64_t mask = 0xffffffffU;
  const uint64_t low = (bits & mask) * (range & mask);
  const uint64_t cross = (bits >> 32) * (range & mask) + (low >> 32);
  const uint64_t other = (bits & mask) * (range >> 32) + (cross & mask);
  return (bits >> 32) * (range >> 32) + (cross >> 32) + (other >> 32);
}

/** @brief The natural logarithm of a normal positive double, to 2 ulp: x = 2^k m with m within a
 *  factor of sqrt(2) of 1, and log m = 2 artanh(s), s = (m - 1) / (m + 1); the polynomial is that
 *  of fdlibm's e_log.c. */
BS_HOST_DEVICE inline double reproducible_log(double x) {
  const auto bits = std::bit_cast<int64_t>(x);
  constexpr int64_t sqrt_half = 0x3fe6a09e667f3bcd;
  const int64_t exponent = (bits - sqrt_half) >> 52;
  const double f = std::bit_cast<double>(bits - exponent * (int64_t{1} << 52)) - 1.0;
  const auto k = static_cast<double>(exponent);
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 1.479819860511658591e-01;
  p = std::fma(p, z, 1.531383769920937332e-01);
  p = std::fma(p, z, 1.818357216161805012e-01);
  p = std::fma(p, z, 2.222219843214978396e-01);
  p = std::fma(p, z, 2.857142874366239149e-01);
  p = std::fma(p, z, 3.999999999940941908e-01);
  p = std::fma(p, z, 6.666666666666735130e-01);
  const double log_m = std::fma(s, z * p, 2.0 * s);
  return std::fma(k, 6.93147180369123816490e-01, std::fma(k, 1.90821492927058770002e-10, log_m));
}

/** @brief The same of (word + 1) / 2^32 in f32, with a relative error below 2^-22. Above sqrt(1/2)
 * it takes the distance from 1, of which a float keeps all digits that matter. */
BS_HOST_DEVICE inline float reproducible_log(uint32_t word) {
  constexpr uint32_t sqrt_half = 0xb504f333U;  // of 2^32
  const bool near = word >= sqrt_half;
  const auto x = static_cast<float>(near ? ~word : word + 1);
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;
  const float f =
      near ? x * -0x1p-32F : std::bit_cast<float>(bits - exponent * (int32_t{1} << 23)) - 1.0F;
  const auto k = static_cast<float>(near ? 0 : exponent - 32);
  float p = 8.787265491e-02F;
  p = std::fma(p, f, -1.415964701e-01F);
  p = std::fma(p, f, 1.483478684e-01F);
  p = std::fma(p, f, -1.658848853e-01F);
  p = std::fma(p, f, 1.997204971e-01F);
  p = std::fma(p, f, -2.500114768e-01F);
  p = std::fma(p, f, 3.333367061e-01F);
  p = std::fma(p, f, -4.999999713e-01F);
  return std::fma(k, 6.931471806e-01F, std::fma(f * f, p, f));
}

/** @brief Two independent numbers. */
template <class W>
struct Pair {
  W first, second;
};

/** @brief Cosine and sine of an angle, by those of what it exceeds so many quarter turns. */
template <class W>
BS_HOST_DEVICE Pair<W> in_quarter(uint32_t quarter, W cosine, W sine) {
  const bool swapped = (quarter & 1) != 0;
  const W x = swapped ? sine : cosine, y = swapped ? cosine : sine;
  return {((quarter + 1) & 2) != 0 ? -x : x, (quarter & 2) != 0 ? -y : y};
}

/** @brief Cosine and sine of a whole turn's part u in [0, 1], to 2 ulp; fdlibm's polynomials. */
BS_HOST_DEVICE inline Pair<double> turn(double u) {
  const auto quarter = static_cast<int64_t>(std::fma(4.0, u, 0.5));
  const double a = 6.283185307179586477 * std::fma(static_cast<double>(quarter), -0.25, u);
  const double z = a * a;
  double s = 1.58969099521155010221e-10;
  s = std::fma(s, z, -2.50507602534068634195e-08);
  s = std::fma(s, z, 2.75573137070700676789e-06);
  s = std::fma(s, z, -1.98412698298579493134e-04);
  s = std::fma(s, z, 8.33333333332248946124e-03);
  s = std::fma(s, z, -1.66666666666666324348e-01);
  s = std::fma(a * z, s, a);
  double c = -1.13596475577881948265e-11;
  c = std::fma(c, z, 2.08757232129817482790e-09);
  c = std::fma(c, z, -2.75573143513906633035e-07);
  c = std::fma(c, z, 2.48015872894767294178e-05);
  c = std::fma(c, z, -1.38888888888741095749e-03);
  c = std::fma(c, z, 4.16666666666666019037e-02);
  c = std::fma(z * z, c, std::fma(-0.5, z, 1.0));
  return in_quarter(static_cast<uint32_t>(quarter), c, s);
}

/** @brief The same of word / 2^32 in f32, with an error below 2^-22. */
BS_HOST_DEVICE inline Pair<float> turn(uint32_t word) {
  const uint32_t quarter = (word + (uint32_t{1} << 29)) >> 30;
  const float a = static_cast<float>(static_cast<int32_t>(word - (quarter << 30))) *
                  1.462918079e-09F;  // 2 pi / 2^32
  const float z = a * a;
  float s = -1.958789088e-04F;
  s = std::fma(s, z, 8.332748271e-03F);
  s = std::fma(s, z, -1.666666466e-01F);
  s = std::fma(a * z, s, a);
  float c = 2.454794209e-05F;
  c = std::fma(c, z, -1.388830304e-03F);
  c = std::fma(c, z, 4.166666466e-02F);
  c = std::fma(z * z, c, std::fma(-0.5F, z, 1.0F));
  return in_quarter(quarter, c, s);
}

/** @brief Two standard normal numbers of the upper 53 bits of two draws (Box, Muller, 1958). */
BS_HOST_DEVICE inline Pair<double> normal_pair(uint64_t radius, uint64_t angle) {
  // From (0, 1], since the logarithm of zero is not wanted.
  const double r = std::sqrt(-2.0 * reproducible_log(unit_interval<53>(radius) + 0x1p-53));
  const Pair<double> p = turn(unit_interval<53>(angle));
  return {r * p.first, r * p.second};
}

/** @brief The same of two words in f32. */
BS_HOST_DEVICE inline Pair<float> normal_pair(uint32_t radius, uint32_t angle) {
  const float r = std::sqrt(-2.0F * reproducible_log(radius));
  const Pair<float> p = turn(angle);
  return {r * p.first, r * p.second};
}

/** @brief As a probability p compares with a word: word < threshold(p) has probability p.
 *  @throws Error when p is not within [0, 1]. */
inline uint64_t threshold(double p) {
  BS_CHECK(p >= 0 && p <= 1, "threshold: probability {} is not within [0, 1]", p);
  return static_cast<uint64_t>(std::ldexp(p, 32));
}

}  // namespace bs
