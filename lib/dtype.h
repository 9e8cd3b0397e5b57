#pragma once
/** @file Element types, and the one place where a run-time DType becomes a C++ type. */
#include <bs/lib/check.h>
#include <bs/lib/half.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace bs {

/** @brief Element type of a tensor. The order is the promotion order within a kind. */
enum class DType : uint8_t { boolean, u8, i32, i64, f16, bf16, f32, f64 };

inline constexpr DType boolean = DType::boolean;  ///< one byte, 0 or 1
inline constexpr DType u8 = DType::u8;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType f16 = DType::f16;    ///< IEEE binary16
inline constexpr DType bf16 = DType::bf16;  ///< bfloat16: f32 with a mantissa of 7 bits
inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;

constexpr bool is_floating(DType d) { return d >= DType::f16; }
constexpr bool is_low_precision(DType d) { return d == DType::f16 || d == DType::bf16; }
/** @brief Size of one element in bytes. */
constexpr size_t size_of(DType d) {
  constexpr size_t sizes[] = {1, 1, 4, 8, 2, 2, 4, 8};
  return sizes[static_cast<size_t>(d)];
}
std::string to_string(DType d);
/** @brief Inverse of to_string ("f32", "bf16", ...); also takes PyTorch's names ("float32").
 *  @throws Error for an unknown name. */
DType parse_dtype(std::string_view name);
/** @brief The type in which `a op b` is computed, by PyTorch's rules for two tensors. Floating
 *  beats integral beats boolean; f16 with bf16 gives f32; u8 with i32 gives i32. */
DType promote(DType a, DType b);

template <class T>
struct Type {
  using type = T;
};

namespace detail {
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<bool> : std::integral_constant<DType, DType::boolean> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::u8> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::i64> {};
template <>
struct DTypeOf<half> : std::integral_constant<DType, DType::f16> {};
template <>
struct DTypeOf<bfloat16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
[[noreturn]] void unsupported_dtype(const char* op, DType d, const char* expected);
}  // namespace detail

/** @brief The DType of a C++ element type. */
template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

/** @brief Calls `f(Type<T>{})` with the C++ type of `d`, one of f64 f32 f16 bf16.
 *  @throws Error naming `op` for any other. */
template <class F>
decltype(auto) visit_floating(const char* op, DType d, F&& f) {
  switch (d) {
    case DType::f64:
      return f(Type<double>{});
    case DType::f32:
      return f(Type<float>{});
    case DType::f16:
      return f(Type<half>{});
    case DType::bf16:
      return f(Type<bfloat16>{});
    default:
      detail::unsupported_dtype(op, d, "f64, f32, f16 or bf16");
  }
}

/** @brief Calls `f(Type<T>{})` with the C++ index type of `d`, i64 or i32. */
template <class F>
decltype(auto) visit_index(const char* op, DType d, F&& f) {
  switch (d) {
    case DType::i64:
      return f(Type<int64_t>{});
    case DType::i32:
      return f(Type<int32_t>{});
    default:
      detail::unsupported_dtype(op, d, "i64 or i32");
  }
}

/** @brief Calls `f(Type<T>{})` with the C++ type of any DType. */
template <class F>
decltype(auto) visit_any(DType d, F&& f) {
  switch (d) {
    case DType::boolean:
      return f(Type<bool>{});
    case DType::u8:
      return f(Type<uint8_t>{});
    case DType::i32:
      return f(Type<int32_t>{});
    case DType::i64:
      return f(Type<int64_t>{});
    case DType::f16:
      return f(Type<half>{});
    case DType::bf16:
      return f(Type<bfloat16>{});
    case DType::f32:
      return f(Type<float>{});
    default:
      return f(Type<double>{});
  }
}

}  // namespace bs
