#pragma once
/** @file
 *  Errors. Every error of the library is a `bs::Error` whose text names the operation, says what is
 *  wrong, and shows the values: `matmul: inner dimensions differ: a [4, 8], b [9, 3]`.
 */
#include <concepts>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace bs {

/** @brief Base of everything this library throws. */
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/** @brief Memory could not be had; the text tells the size asked for and what is in use. */
class OutOfMemory : public Error {
 public:
  using Error::Error;
};
/** @brief A file could not be read or written, or does not hold what it should. */
class IoError : public Error {
 public:
  using Error::Error;
};
/** @brief A call into CUDA, cuBLAS or NVRTC failed. */
class CudaError : public Error {
 public:
  using Error::Error;
};

/** @brief One value to print in a message; converts from anything that prints. */
class FormatArgument {
 public:
  template <class T>
  FormatArgument(const T& value) : text_(print(value)) {}  // NOLINT(google-explicit-constructor)
  const std::string& text() const { return text_; }

 private:
  template <class T>
  static std::string print(const T& value) {
    if constexpr (std::same_as<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::floating_point<T>) {
      return print_double(static_cast<double>(value));
    } else if constexpr (std::integral<T>) {
      return std::to_string(value);
    } else if constexpr (std::convertible_to<const T&, std::string_view>) {
      return std::string(std::string_view(value));
    } else {
      return to_string(value);
    }
  }
  static std::string print_double(double value);
  std::string text_;
};

/** @brief Replaces each `{}` of `pattern` by the next argument. */
std::string format(std::string_view pattern, std::initializer_list<FormatArgument> arguments);
template <class... Args>
std::string format(std::string_view pattern, const Args&... args) {
  return format(pattern, std::initializer_list<FormatArgument>{FormatArgument(args)...});
}

}  // namespace bs

/** Throws `kind` with a formatted text; `{}` stands for the next argument. */
#define BS_THROW(kind, ...) throw kind(::bs::format(__VA_ARGS__))
/** Throws bs::Error unless `condition` holds; the arguments are evaluated only then. */
#define BS_CHECK(condition, ...)          \
  do {                                    \
    if (!(condition)) [[unlikely]]        \
      BS_THROW(::bs::Error, __VA_ARGS__); \
  } while (false)
