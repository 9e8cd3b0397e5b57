#pragma once
/** @file From the name of a type to a function over that type, and functions of one to three
 *  operands. */
#include <bs/tests/emulator/numbers.h>
#include <bs/tests/emulator/program.h>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace bs::emulator {

template <class T>
struct Type {
  using type = T;
};

/** @brief f(Type<T>{}) of an integer of 16 bits or more; null for other names. */
template <class F>
Execute for_integer(std::string_view type, const F& f) {
  if (type == "u16" || type == "b16") return f(Type<uint16_t>());
  if (type == "s16") return f(Type<int16_t>());
  if (type == "u32" || type == "b32") return f(Type<uint32_t>());
  if (type == "s32") return f(Type<int32_t>());
  if (type == "u64" || type == "b64") return f(Type<uint64_t>());
  if (type == "s64") return f(Type<int64_t>());
  return nullptr;
}

/** @brief The same of a float, or of a pair of them. */
template <class F>
Execute for_float(std::string_view type, const F& f) {
  if (type == "f32") return f(Type<float>());
  if (type == "f64") return f(Type<double>());
  if (type == "f16") return f(Type<Half>());
  if (type == "bf16") return f(Type<Brain>());
  if (type == "f16x2") return f(Type<Pair<Half>>());
  if (type == "bf16x2") return f(Type<Pair<Brain>>());
  if (type == "f32x2") return f(Type<Pair<float>>());
  return nullptr;
}

/** @brief The same of either. */
template <class F>
Execute for_number(std::string_view type, const F& f) {
  const Execute found = for_integer(type, f);
  return found != nullptr ? found : for_float(type, f);
}

/** @brief The same of what a memory holds: bytes too, but no narrow floats. */
template <class F>
Execute for_stored(std::string_view type, const F& f) {
  if (type == "u8" || type == "b8") return f(Type<uint8_t>());
  if (type == "s8") return f(Type<int8_t>());
  if (type == "f32") return f(Type<float>());
  if (type == "f64") return f(Type<double>());
  return for_integer(type, f);
}

/** @brief As a register holds it: integers with their sign, all else with zeros above. */
template <class T>
uint64_t extended(T value) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  } else {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
}

/** @brief to = f(a), of T; f is a lambda that captures nothing. */
template <class T, class F>
Execute unary(const F&) {
  return [](Thread& t, const Instruction& i) {
    t.write<T>(i.to, static_cast<T>(elementwise(F(), t.read<T>(i.a))));
  };
}

/** @brief to = f(a, b). */
template <class T, class F>
Execute binary(const F&) {
  return [](Thread& t, const Instruction& i) {
    t.write<T>(i.to, static_cast<T>(elementwise(F(), t.read<T>(i.a), t.read<T>(i.b))));
  };
}

/** @brief to = f(a, b, c). */
template <class T, class F>
Execute ternary(const F&) {
  return [](Thread& t, const Instruction& i) {
    t.write<T>(i.to,
               static_cast<T>(elementwise(F(), t.read<T>(i.a), t.read<T>(i.b), t.read<T>(i.c))));
  };
}

template <class F>
Execute float_unary(std::string_view type, const F& f) {
  return for_float(type, [&]<class T>(Type<T>) { return unary<T>(f); });
}
template <class F>
Execute float_binary(std::string_view type, const F& f) {
  return for_float(type, [&]<class T>(Type<T>) { return binary<T>(f); });
}
template <class F>
Execute number_binary(std::string_view type, const F& f) {
  return for_number(type, [&]<class T>(Type<T>) { return binary<T>(f); });
}
template <class F>
Execute integer_binary(std::string_view type, const F& f) {
  return for_integer(type, [&]<class T>(Type<T>) { return binary<T>(f); });
}

}  // namespace bs::emulator
