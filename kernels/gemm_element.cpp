#include <bs/kernels/gemm_element.h>

#include <bit>
#include <cmath>
#include <limits>

namespace bs {

namespace {

struct Fp8 {
  int mantissa_bits, bias;
  float largest;
};

Fp8 format_of(Element e) {
  if (e == Element::e4m3) return {3, 7, 448.0F};
  BS_CHECK(e == Element::e5m2, "fp8: {} is no 8-bit float", e);
  return {2, 15, 57344.0F};
}

}  // namespace

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return Element::f64;
    case DType::f32:
      return Element::f32;
    case DType::f16:
      return Element::f16;
    case DType::bf16:
      return Element::bf16;
    case DType::i32:
      return Element::i32;
    default:
      BS_THROW(Error, "gemm: tensors of {} are not multiplied; expected f64, f32, f16, bf16 or i32",
               dtype);
  }
}

std::string to_string(Element e) {
  constexpr const char* names[] = {"f64", "f32", "tf32", "f16", "bf16",
                                   "i8",  "i32", "e4m3", "e5m2"};
  return names[static_cast<size_t>(e)];
}

float decode_fp8(uint8_t bits, Element element) {
  const Fp8 format = format_of(element);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits & 0x7F) >> format.mantissa_bits;
  const int top = 0x7F >> format.mantissa_bits;
  float value = 0;
  if (element == Element::e4m3 && (bits & 0x7F) == 0x7F) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (element == Element::e5m2 && exponent == top) {
    value = mantissa == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - format.bias - format.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + (1 << format.mantissa_bits)),
                       exponent - format.bias - format.mantissa_bits);
  }
  return bits & 0x80 ? -value : value;
}

uint8_t encode_fp8(float value, Element element) {
  const Fp8 format = format_of(element);
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7F);
  const float size = std::min(std::abs(value), format.largest);
  if (size == 0) return sign;
  // A multiple of the step between neighbours at this size; below the normals the step stays.
  const int exponent = std::max(std::ilogb(size), 1 - format.bias);
  const int step = exponent - format.mantissa_bits;
  const auto multiple = static_cast<int>(std::nearbyint(std::ldexp(size, -step)));
  // With the implicit bit in place the fields add up, carries into the exponent included.
  const int fields = ((exponent + format.bias - 1) << format.mantissa_bits) + multiple;
  const int largest = element == Element::e4m3 ? 0x7E : 0x7B;
  return static_cast<uint8_t>(sign | std::min(fields, largest));
}

float round_to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x1000U) & ~0x1FFFU);
}

}  // namespace bs
