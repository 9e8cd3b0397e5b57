#pragma once
/** @file JSON (RFC 8259), read strictly: for the headers of files that come from elsewhere. */
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bs {

/** @brief Whether all of `text` is well-formed UTF-8: no overlong forms, no surrogates, nothing
 * above U+10FFFF. */
bool is_utf8(std::string_view text);

/** @brief One JSON value. Objects keep the order of their members. */
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  static constexpr int max_depth = 64;

  Json() = default;  ///< null
  Json(bool value) : value_(value) {}
  Json(int value) : value_(int64_t{value}) {}
  Json(int64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  /** @brief Reads one value. Refused: anything after it, nesting deeper than max_depth, members of
   *  one name twice, invalid UTF-8, lone surrogates, and every leniency of other parsers.
   *  @throws IoError telling the position. */
  static Json parse(std::string_view text);
  /** @brief Reads an object and hands over its members one by one, in order. Memory is needed for
   *  one of them, while parse() takes up to forty bytes for each byte of a text made to cost some.
   *  @param[in] most_values values that one member may consist of
   *  @throws IoError like parse(), a name that comes twice at the end only. */
  static void parse_members(std::string_view text, size_t most_values,
                            const std::function<void(const std::string& name, Json)>& take);
  /** @brief The value in one line without spaces, UTF-8 kept. Numbers read back exactly; NaN and
   * infinities, which JSON lacks, become null.
   *  @throws Error when a string is not UTF-8: parse() would refuse it. */
  std::string dump() const;

  bool is_null() const { return value_.index() == 0; }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  /** @brief The value as what it must be. @throws IoError when it is something else. */
  bool boolean() const { return get<bool>("a boolean"); }
  int64_t integer() const { return get<int64_t>("an integer"); }
  double number() const;
  const std::string& string() const { return get<std::string>("a string"); }
  const Array& array() const { return get<Array>("an array"); }
  const Object& object() const { return get<Object>("an object"); }
  /** @brief The member of an object, or null when there is none. */
  const Json* find(std::string_view name) const;

  bool operator==(const Json&) const = default;

 private:
  template <class T>
  const T& get(const char* expected) const {
    if (const T* held = std::get_if<T>(&value_)) return *held;
    wrong_kind(expected);
  }
  [[noreturn]] void wrong_kind(const char* expected) const;
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace bs
