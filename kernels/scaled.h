#pragma once
/** @file A number as mantissa * 2^exponent with an exponent of its own, for sums over paths. The
 *  product of thousands of probabilities keeps all its digits. f32 or f64 alone would underflow,
 *  and a logarithm would spend its digits on its size. A step is a few multiplications and integer
 *  operations, no exp and no log. Host and device take this text. */
#include <bs/lib/host_device.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace bs {

/** @brief Exponent and bit layout of a mantissa type. */
template <class W>
struct ScaledTraits;
template <>
struct ScaledTraits<float> {
  using Int = int32_t;
  static constexpr int digits = 23, bias = 127, mask = 0xff;
  static constexpr float ln2_high = 0.693359375F, ln2_low = -2.12194440e-4F;
};
template <>
struct ScaledTraits<double> {
  using Int = int64_t;
  static constexpr int digits = 52, bias = 1023, mask = 0x7ff;
  static constexpr double ln2_high = 6.93147180369123816490e-01;
  static constexpr double ln2_low = 1.90821492927058770002e-10;
};

/** @brief value * 2^exponent. Zero has value 0; NaN in `value` stays NaN through everything. */
template <class W>
struct alignas(2 * sizeof(W)) Scaled {
  using Int = typename ScaledTraits<W>::Int;
  /// Exponent of zero, and the least there is: two of them, and a step besides, fit into Int.
  static constexpr Int lowest = -(Int{1} << 29);

  W value;
  Int exponent;

  BS_HOST_DEVICE static Scaled zero() { return {W(0), lowest}; }
  BS_HOST_DEVICE static Scaled one() { return {W(1), Int(0)}; }
};

/** @brief 2^n for n <= 127 (1023); 0 where that underflows. */
template <class W>
BS_HOST_DEVICE inline W power_of_two(typename Scaled<W>::Int n) {
  using Int = typename Scaled<W>::Int;
  const Int biased = n + ScaledTraits<W>::bias;
  return std::bit_cast<W>((biased > 0 ? biased : Int(0)) << ScaledTraits<W>::digits);
}

/** @brief e^x. Below e^-726817 (2^-2^20) it is zero, above e^726817 infinite. */
template <class W>
BS_HOST_DEVICE inline Scaled<W> scaled_exp(W x) {
  using Traits = ScaledTraits<W>;
  using Int = typename Traits::Int;
  constexpr W limit = W(726817);
  if (x != x) return {x, Int(0)};
  if (x < -limit) return Scaled<W>::zero();
  if (x > limit) return {W(INFINITY), Int(0)};
  const W n = std::nearbyint(x * W(1.4426950408889634));
  const W rest = std::fma(-n, Traits::ln2_low, std::fma(-n, Traits::ln2_high, x));
  return {std::exp(rest), static_cast<Int>(n)};
}

/** @brief The natural logarithm. */
template <class W>
BS_HOST_DEVICE inline double scaled_log(Scaled<W> a) {
  return std::log(static_cast<double>(a.value)) +
         static_cast<double>(a.exponent) * 0.69314718055994530942;
}

/** @brief a * b with its value anywhere in [1/4, 4): to be given to an addition next. */
template <class W>
BS_HOST_DEVICE inline Scaled<W> operator*(Scaled<W> a, Scaled<W> b) {
  return {a.value * b.value, a.exponent + b.exponent};
}

/** @brief a with its value in [1, 2), or zero. */
template <class W>
BS_HOST_DEVICE inline Scaled<W> normalized(Scaled<W> a) {
  using Traits = ScaledTraits<W>;
  using Int = typename Traits::Int;
  const Int n = ((std::bit_cast<Int>(a.value) >> Traits::digits) & Traits::mask) - Traits::bias;
  const Int exponent = a.exponent + n;
  const bool vanishes = a.value == W(0) || exponent < Scaled<W>::lowest;
  return {a.value * power_of_two<W>(-n), vanishes ? Scaled<W>::lowest : exponent};
}

/** @brief a + b, normalized; of the smaller one what reaches the larger one's last digit counts. */
template <class W>
BS_HOST_DEVICE inline Scaled<W> operator+(Scaled<W> a, Scaled<W> b) {
  const auto top = a.exponent > b.exponent ? a.exponent : b.exponent;
  // Powers of two are exact factors, so that nothing is left to a compiler's choice of contraction.
  const W sum =
      a.value * power_of_two<W>(a.exponent - top) + b.value * power_of_two<W>(b.exponent - top);
  return normalized(Scaled<W>{sum, top});
}

/** @brief a < b for normalized numbers. */
template <class W>
BS_HOST_DEVICE inline bool operator<(Scaled<W> a, Scaled<W> b) {
  return a.exponent != b.exponent ? a.exponent < b.exponent : a.value < b.value;
}

/** @brief a b / c as a plain number, for results of moderate size; 0 where c is 0. */
template <class W>
BS_HOST_DEVICE inline W scaled_ratio(Scaled<W> a, Scaled<W> b, Scaled<W> c) {
  if (c.value == W(0)) return W(0);
  const int64_t exponent = int64_t{a.exponent} + b.exponent - c.exponent;
  const W value = a.value * b.value / c.value;
  if (exponent > ScaledTraits<W>::bias - 2) return value * W(INFINITY);
  // In two steps, so that results below the smallest power come out as zero, not as NaN.
  if (exponent < -ScaledTraits<W>::bias) return value * W(0);
  return value * power_of_two<W>(static_cast<typename Scaled<W>::Int>(exponent));
}

}  // namespace bs
