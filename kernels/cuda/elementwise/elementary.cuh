#pragma once
// Elementary functions of elements of type T, which take and give what T is computed in. For types
// of 16 bits they are off by an eighth of a unit in the last place at most, before they are
// rounded; others are those of CUDA, but for expm1 and pow of floats.
#include <bs/kernels/cuda/device/tile/activation.cuh>

#include <cmath>

namespace bs::cuda {

using device::horner;
using device::is_16_bit;
using device::wide;

/// The logarithm to the base two, to 3e-6 of itself.
__device__ inline float log2_of(float x) {
  float far;
  asm("lg2.approx.f32 %0, %1;" : "=f"(far) : "f"(x));
  const float t = x - 1;  // of which the logarithm is a polynomial
  const float near = horner(t, -0.250783620F, 0.334116621F, -0.499999298F, 0.999999617F) * t;
  return fabsf(t) < 0.0625F ? near * 1.44269504F : far;
}

/// 2^x, where it is subnormal too.
__device__ inline float whole_exp2_of(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x, where either is subnormal too; to 1 ulp of float.
template <class T>
__device__ inline wide<T> whole_reciprocal_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  } else {
    return 1 / x;
  }
}

/// The square root; in 16 bits to 1 ulp of float.
template <class T>
__device__ inline wide<T> sqrt_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  } else {
    return ::sqrt(x);
  }
}

/// a / b of a positive b; in 16 bits zero where b is beyond 2^126.
template <class T>
__device__ inline wide<T> quotient_of(wide<T> a, wide<T> b) {
  if constexpr (is_16_bit<T>) {
    return a * device::reciprocal_of(b);
  } else {
    return a / b;
  }
}

/// The lesser and the greater of two numbers, NaN where one is.
__device__ inline float lesser(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float greater(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// A sum with it is a whole number, whose lowest bits are the lowest of the sum: 1.5 * 2^23.
constexpr float whole_shift = 12582912;

/// The natural logarithm.
template <class T>
__device__ inline wide<T> relative_log_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    return log2_of(x) * 0.693147181F;
  } else {
    return ::log(x);
  }
}

/// log(1 + x) of any x.
template <class T>
__device__ inline wide<T> log_of_one_plus(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    const float near = horner(x, -0.250783620F, 0.334116621F, -0.499999298F, 0.999999617F) * x;
    return fabsf(x) < 0.0625F ? near : device::log_of<T>(1 + x);
  } else {
    return ::log1p(x);
  }
}

/// e^x - 1 in float, to 1.6 units in the last place: 18 instructions and no branch. With a power of
/// two, 2^k, split from e^x the rest is at most half of log 2.
__device__ inline float expm1_of_float(float x) {
  const float kept = lesser(greater(x, -20.0F), 89.0F);  // beyond them -1 and infinity
  const float whole = fmaf(kept, 1.44269504F, whole_shift), k = whole - whole_shift;
  const float rest = fmaf(-k, 1.42860677e-6F, fmaf(-k, 0.693145752F, kept));
  const float square =
      horner(rest, 0.00139012898F, 0.00836315192F, 0.0416668542F, 0.166665778F, 0.500000000F) *
      (rest * rest);
  const float power = __uint_as_float((__float_as_uint(whole) << 23) + 0x3f000000U);  // 2^(k - 1)
  const float half = fmaf(square + rest, power, power - 0.5F);
  return fabsf(x) < 1e-7F ? x : half + half;
}

template <class T>
__device__ inline wide<T> expm1_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    const float near = horner(x, 0.0416666441F, 0.167187371F, 0.500003390F, 0.999995950F) * x;
    return fabsf(x) < 0.25F ? near : device::exp_of<T>(x) - 1;
  } else if constexpr (sizeof(T) == 4) {
    return expm1_of_float(x);
  } else {
    return ::expm1(x);
  }
}

template <class T>
__device__ inline wide<T> erf_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    const float square = fminf(x * x, 9.0F);
    const float ratio =
        horner(square, 4.52058648e-8F, -2.12016152e-6F, 4.39104766e-5F, -5.35774936e-4F,
               4.35878467e-3F, -2.54560390e-2F, 0.111625089F, -0.375704060F, 1.12835332F);
    return copysignf(lesser(fabsf(x * ratio), 1.0F), x);  // from 3 on it rounds to one
  } else {
    return ::erf(x);
  }
}

constexpr float pi = 3.14159274F, pi_rest = -8.74227766e-8F;  ///< whose sum is the number
constexpr float most_angle = 1e5F;  ///< beyond it CUDA's functions reduce in more words

/// An angle as half turns, a whole number or that and `part`, and the rest.
struct Angle {
  float rest;
  unsigned turns;
};
__device__ inline Angle reduce_angle(float x, float part) {
  const float whole = fmaf(x, 1 / pi, -part) + whole_shift;
  const float turns = whole - whole_shift + part;
  return {fmaf(-turns, pi_rest, fmaf(-turns, pi, x)), __float_as_uint(whole)};
}
/// Of a quarter of a turn at most; to 5e-5 of itself.
__device__ inline float sine_of_rest(float x) {
  float y;
  asm("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return fabsf(x) < 0.01F ? x : y;
}
__device__ inline float negated_where_odd(float x, unsigned turns) {
  return __uint_as_float(__float_as_uint(x) ^ turns << 31);
}

/// Of an angle; in 16 bits of one up to `most_angle`.
template <class T>
__device__ inline wide<T> sin_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    const Angle a = reduce_angle(x, 0);
    return negated_where_odd(sine_of_rest(a.rest), a.turns);
  } else {
    return ::sin(x);
  }
}
template <class T>
__device__ inline wide<T> cos_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    const Angle a = reduce_angle(x, 0.5F);
    return negated_where_odd(sine_of_rest(a.rest), a.turns + 1);
  } else {
    return ::cos(x);
  }
}
/// In 16 bits a polynomial of what is left of quarter turns; behind an odd one the tangent is minus
/// its reciprocal. Either is a quotient, so that there is no branch.
template <class T>
__device__ inline wide<T> tan_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    const float whole = fmaf(x, 2 / pi, whole_shift), turns = whole - whole_shift;
    const float rest = fmaf(-turns, pi_rest / 2, fmaf(-turns, pi / 2, x));
    const float t =
        horner(rest * rest, 0.0941422805F, 0.115966946F, 0.335584491F, 0.999955833F) * rest;
    const bool is_odd = __float_as_uint(whole) & 1;
    return (is_odd ? -1 : t) * device::reciprocal_of(is_odd ? t : 1);
  } else {
    return ::tan(x);
  }
}

/// A number in two parts.
struct TwoParts {
  float high, low;
};
/// log2 |a|: the logarithm of what is left of |a| beside a power of two is twice the inverse
/// hyperbolic tangent of (m - 1) / (m + 1), of which q is the first term and `rest` what that
/// lacks.
__device__ inline TwoParts log2_parts_of(float a) {
  constexpr float scale = 1.44269502F, scale_rest = 1.92513667e-8F;  // whose sum is log2(e)
  const unsigned bits = __float_as_uint(fabsf(a)), two = (bits - 0x3f3504f3U) & 0xff800000U;
  const float m = __uint_as_float(bits - two), f = m - 1;
  const float whole = static_cast<float>(static_cast<int>(two)) * 0x1p-23F;
  const float reciprocal = device::reciprocal_of(m + 1), q = (f + f) * reciprocal;
  const float rest = reciprocal * fmaf(-q, f, f - q + (f - q));
  const float square = q * q;
  const float p =
      horner(square, 6.56886259e-4F, 3.21816537e-3F, 1.80336870e-2F, 0.120224588F) * square;
  const float first = fmaf(q, scale, whole);
  float more = fmaf(q, scale_rest, fmaf(rest, scale, fmaf(q, scale, whole - first)));
  more = fmaf(q, p, fmaf(rest, 3 * p, more));
  const float high = first + more;
  return {high, more - (high - first)};
}
/// |a|^b of that logarithm. Clears `holds` where f32 needs CUDA's function, for what is subnormal,
/// zero or not finite; otherwise it is off by 5 units in the last place at most.
__device__ inline float power_of(float a, TwoParts log, float b, bool& holds) {
  const float high = b * log.high, low = fmaf(b, log.low, fmaf(b, log.high, -high));
  holds &= (fabsf(a) >= 0x1p-126F) & (fabsf(a) < INFINITY) & (fabsf(high) < 125);
  const float near = device::exp2_of(high);
  return fmaf(near * 0.693147181F, low, near);
}

/// Clears `holds` where f32 needs CUDA's function.
template <class T>
__device__ inline wide<T> pow_of(wide<T> a, wide<T> b, bool& holds) {
  if constexpr (is_16_bit<T>) {
    const float log = log2_of(fabsf(a));
    float exponent = b * log;
    if (b == 0 || a == 1 || (a == -1 && b == b)) exponent = 0;  // also beside what is not finite
    const float y = whole_exp2_of(exponent);
    if (!signbit(a)) return y;
    const bool is_whole = truncf(b) == b, is_odd = is_whole && truncf(b * 0.5F) * 2 != b;
    if (a < 0 && !is_whole && fabsf(a) < INFINITY) return NAN;
    return is_odd ? -y : y;
  } else if constexpr (sizeof(T) == 4) {
    holds &= fabsf(b) < 4194304;
    const float y = power_of(a, log2_parts_of(a), b, holds);
    const float whole = b + whole_shift;
    const unsigned sign = __float_as_uint(whole) << 31 & __float_as_uint(a);
    const bool is_number = (a > 0) | (whole - whole_shift == b);
    return is_number ? __uint_as_float(__float_as_uint(y) ^ sign) : NAN;
  } else {
    return ::pow(a, b);
  }
}

/// a - b floor(a / b), of b's sign.
template <class T>
__device__ inline wide<T> remainder_of(wide<T> a, wide<T> b) {
  wide<T> rest;
  if constexpr (is_16_bit<T>) {
    // The nearest quotient leaves a rest of as many bits as b, up to half of it on either side.
    const float size = fabsf(b), quotient = fabsf(a) * device::reciprocal_of(size);
    rest = fmaf(-(quotient + whole_shift - whole_shift), size, fabsf(a));
    rest = copysignf(rest < 0 ? rest + size : rest, a);
    if (!(quotient < 1048576) || !(size < INFINITY)) rest = ::fmodf(a, b);
  } else {
    rest = ::fmod(a, b);
  }
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace bs::cuda
