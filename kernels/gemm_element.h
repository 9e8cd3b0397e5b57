#pragma once
/** @file Element types of matrix products: more than tensors have, since the multiplying units know
 *  formats that are only views of others. */
#include <bs/lib/dtype.h>

#include <cstdint>
#include <string>

namespace bs {

/** @brief What an operand or a sum of a product is made of. `tf32` lies in memory as f32 and is
 *  rounded to 10 bits of mantissa on its way into the multiplier. `i8`, `e4m3` and `e5m2` lie in
 *  tensors of u8, bit for bit. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
    "-Wshadow"  // g++ 12: scoped names are said to hide bs::f32 and so on
enum class Element : uint8_t { f64, f32, tf32, f16, bf16, i8, i32, e4m3, e5m2 };
#pragma GCC diagnostic pop

/** @brief Bytes of one element in memory. */
constexpr int size_of(Element e) {
  constexpr int sizes[] = {8, 4, 4, 2, 2, 1, 4, 1, 1};
  return sizes[static_cast<int>(e)];
}
/** @brief The dtype of tensors that hold such elements. */
constexpr DType storage_dtype(Element e) {
  constexpr DType dtypes[] = {DType::f64, DType::f32, DType::f32, DType::f16, DType::bf16,
                              DType::u8,  DType::i32, DType::u8,  DType::u8};
  return dtypes[static_cast<int>(e)];
}
/** @brief The element that tensors of a dtype hold. @throws Error for boolean, u8 and i64, which
 *  say too little or are not multiplied. */
Element element_of(DType dtype);
/** @brief "f64", "tf32", "e4m3", ... */
std::string to_string(Element e);

/** @brief An 8-bit float from its bits: 1 sign, then 4 bits of exponent and 3 of mantissa (e4m3,
 *  no infinity) or 5 and 2 (e5m2). By the OCP 8-bit floating point specification. */
float decode_fp8(uint8_t bits, Element format);
/** @brief The nearest 8-bit float, ties to even; what is too large becomes the largest finite one.
 */
uint8_t encode_fp8(float value, Element format);
/** @brief x rounded to the 10 bits of mantissa of tf32, ties away from zero, as `cvt.rna.tf32`. */
float round_to_tf32(float x);

}  // namespace bs
