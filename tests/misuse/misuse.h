#pragma once
/** @file Calls of functions whose arguments are right, nearly right and wrong. */
#include <bs/tests/misuse/compound_values.h>

#include <initializer_list>
#include <sstream>
#include <string_view>

namespace bs::test {

/** @brief How a parameter of type P is kept between calls, and handed over. */
template <class P>
struct Parameter {
  using Kept = std::remove_cvref_t<P>;
  static P pass(Kept& kept) { return static_cast<P>(kept); }
};
template <class T>
struct Parameter<std::span<const T>> {
  using Kept = std::vector<T>;
  static std::span<const T> pass(Kept& kept) { return kept; }
};
template <>
struct Parameter<const Layout&> {
  using Kept = LayoutPtr;
  static const Layout& pass(Kept& kept) {
    if (!kept) kept = Layout::from_blocks(1, 1, 1, 8, {});
    return *kept;
  }
};
template <>
struct Parameter<Tensor*> {
  using Kept = Tensor;
  static Tensor* pass(Kept& kept) { return kept.defined() ? &kept : nullptr; }
};
template <>
struct Parameter<Generator&> {
  using Kept = bool;
  static Generator& pass(Kept&) { return default_generator(); }
};
template <>
struct Parameter<std::string_view> {
  using Kept = std::string;
  static std::string_view pass(Kept& kept) { return kept; }
};
template <>
struct Parameter<std::ostream&> {
  using Kept = bool;
  static std::ostream& pass(Kept&) {
    static std::ostringstream text;
    text.str("");
    return text;
  }
};

/** @brief What can be done with the values of one parameter. */
struct ParameterValues {
  std::any (*draw)(Source& from);
  std::any (*unset)();  ///< as where an argument or option is left out
  int (*wrongs)(const std::any& value);
  void (*make_wrong)(std::any& value, int k);
  std::string (*show)(const std::any& value);
};
template <class Kept>
constexpr ParameterValues parameter_values{
    [](Source& from) { return std::any(Values<Kept>::draw(from)); },
    [] {
      if constexpr (std::is_default_constructible_v<Kept>)
        return std::any(Kept{});
      else
        return std::any(Kept(0.0));
    },
    [](const std::any& value) { return Values<Kept>::wrongs(*std::any_cast<Kept>(&value)); },
    [](std::any& value, int k) { Values<Kept>::make_wrong(*std::any_cast<Kept>(&value), k); },
    [](const std::any& value) { return Values<Kept>::show(*std::any_cast<Kept>(&value)); }};

/** @name What a call returned is read, walked back, and kept for other calls
 *  @{ */
void take(const Tensor& result, Source& to);
void take(const Variable& result, Source& to);
template <class T>
void take(const std::vector<T>& result, Source& to) {
  for (const T& value : result) take(value, to);
  to.keep(result);
}
template <class T>
void take(const T& result, Source& to) {
  if constexpr (std::is_aggregate_v<T>) {
    const auto field = [&](const auto& value) {
      if constexpr (requires { take(value, to); }) take(value, to);
    };
    std::apply([&](const auto&... value) { (field(value), ...); }, fields(result));
    to.keep(result);
  }
}
/** @} */

using Arguments = std::vector<std::any>;

/** @brief A function of the library, whatever its type. What depends on the type is as little as
 * can be: hundreds of types are compiled. */
struct Function {
  using Any = void (*)();
  using Invoke = void (*)(Any function, Arguments& arguments, Source& to);

  std::string header, name;
  std::vector<const ParameterValues*> parameters;
  Any function;
  Invoke invoke;  ///< knows the function's type
};

/** @brief All that were listed, in order. */
std::vector<Function>& functions();

/** @brief Frees the handles of the C interface that arguments were; and what forwards saved. */
void forget_handles(bool saved);

/** @brief Adds a function to the list. */
struct Listed {
  template <class R, class... P>
  Listed(const char* header, const char* name, R (*function)(P...))
      : Listed(header, name, {&parameter_values<typename Parameter<P>::Kept>...},
               reinterpret_cast<Function::Any>(function),
               [](Function::Any any, Arguments& arguments, Source& to) {
                 invoke(reinterpret_cast<R (*)(P...)>(any), arguments, to,
                        std::index_sequence_for<P...>());
               }) {}

 private:
  Listed(const char* header, const char* name,
         std::initializer_list<const ParameterValues*> parameters, Function::Any function,
         Function::Invoke invoke);

  template <class R, class... P, size_t... i>
  static void invoke(R (*function)(P...), [[maybe_unused]] Arguments& arguments, Source& to,
                     std::index_sequence<i...>) {
    if constexpr (std::is_void_v<R>)
      function(Parameter<P>::pass(*std::any_cast<typename Parameter<P>::Kept>(&arguments[i]))...);
    else
      take(function(
               Parameter<P>::pass(*std::any_cast<typename Parameter<P>::Kept>(&arguments[i]))...),
           to);
  }
};

}  // namespace bs::test
