#pragma once
/** @file Conversions between binary16 and binary32 by the instructions of x86 (F16C), rounded to
 *  nearest even. By the compiler's own names: <immintrin.h> costs each file half a second. */
#if defined(__F16C__)
#include <cstdint>

namespace bs::detail {

using Floats4 [[gnu::vector_size(16)]] = float;
using Floats8 [[gnu::vector_size(32)]] = float;
using Halves8 [[gnu::vector_size(16)]] = short;

inline Halves8 halves_of(Floats8 values) { return __builtin_ia32_vcvtps2ph256(values, 0); }
inline Floats8 floats_of(Halves8 bits) { return __builtin_ia32_vcvtph2ps256(bits); }
inline uint16_t half_of(float value) {
  return static_cast<uint16_t>(__builtin_ia32_vcvtps2ph(Floats4{value, 0, 0, 0}, 0)[0]);
}
inline float float_of(uint16_t bits) {
  return __builtin_ia32_vcvtph2ps(Halves8{static_cast<short>(bits), 0, 0, 0, 0, 0, 0, 0})[0];
}

}  // namespace bs::detail

#endif
