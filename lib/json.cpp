#include <bs/lib/json.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace bs {

namespace {

/// Recursive descent over the text, one function a production of the grammar.
class Parser {
 public:
  explicit Parser(std::string_view text, size_t most_values = ~size_t{0})
      : text_(text), most_values_(most_values) {}

  Json document() {
    Json value = any(0);
    end();
    return value;
  }

  void members(const std::function<void(const std::string&, Json)>& take_member) {
    std::vector<std::string> names;
    skip_space();
    if (peek() != '{') fail("'{' is missing");
    each_member(0, [&](std::string name, Json value) {
      take_member(name, std::move(value));
      names.push_back(std::move(name));
      values_ = 0;
    });
    refuse_twins(names);
    end();
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    BS_THROW(IoError, "json: {} at byte {}", what, at_);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  void end() {
    skip_space();
    if (at_ < text_.size()) fail("something follows the value");
  }

  Json any(int depth) {
    if (++values_ > most_values_) fail("too many values");
    if (depth > Json::max_depth) fail("nesting is too deep");
    skip_space();
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return word("true", true);
      case 'f':
        return word("false", false);
      case 'n':
        return word("null", {});
      default:
        return number();
    }
  }

  Json word(std::string_view name, Json value) {
    if (text_.substr(at_, name.size()) != name) fail("no value");
    at_ += name.size();
    return value;
  }

  Json object(int depth) {
    Json::Object members;
    each_member(depth, [&](std::string name, Json value) {
      members.emplace_back(std::move(name), std::move(value));
    });
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const auto& member : members) names.emplace_back(member.first);
    refuse_twins(names);
    return members;
  }

  /// From '{' to '}'.
  template <class F>
  void each_member(int depth, const F& f) {
    ++at_;
    skip_space();
    if (take('}')) return;
    do {
      skip_space();
      if (peek() != '"') fail("a member's name is missing");
      std::string name = string();
      skip_space();
      if (!take(':')) fail("':' is missing");
      f(std::move(name), any(depth + 1));
      skip_space();
    } while (take(','));
    if (!take('}')) fail("'}' is missing");
  }

  template <class Names>
  void refuse_twins(Names& names) const {
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end())
      fail("an object has a member twice");
  }

  Json array(int depth) {
    Json::Array items;
    ++at_;
    skip_space();
    if (take(']')) return items;
    do {
      items.push_back(any(depth + 1));
      skip_space();
    } while (take(','));
    if (!take(']')) fail("']' is missing");
    return items;
  }

  void digits() {
    if (peek() < '0' || peek() > '9') fail("no value");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  Json number() {
    const size_t begin = at_;
    bool whole = true;
    take('-');
    if (!take('0')) digits();
    if (take('.')) {
      whole = false;
      digits();
    }
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      digits();
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + at_;
    int64_t integer = 0;
    if (whole && std::from_chars(first, last, integer).ec == std::errc()) return integer;
    double real = 0;
    if (std::from_chars(first, last, real).ec != std::errc()) fail("a number is out of range");
    return real;
  }

  std::string string() {
    std::string out;
    ++at_;
    while (!take('"')) {
      if (at_ == text_.size()) fail("'\"' is missing");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20) fail("a control character in a string");
      if (c == '\\')
        escape(out);
      else
        out += text_[at_++];
    }
    if (!is_utf8(out)) fail("invalid UTF-8 before");
    return out;
  }

  void escape(std::string& out) {
    ++at_;
    const char c = peek();
    constexpr std::string_view names = "\"\\/bfnrt";
    constexpr std::string_view values = "\"\\/\b\f\n\r\t";
    if (const size_t which = names.find(c); c != '\0' && which != names.npos) {
      out += values[which];
      ++at_;
    } else if (c == 'u') {
      ++at_;
      append_utf8(out, code_point());
    } else {
      fail("an unknown escape");
    }
  }

  uint32_t hex4() {
    uint32_t value = 0;
    const char* first = text_.data() + at_;
    const char* last = first + std::min<size_t>(4, text_.size() - at_);
    if (std::from_chars(first, last, value, 16).ptr != first + 4) fail("an incomplete escape");
    at_ += 4;
    return value;
  }

  uint32_t code_point() {
    const uint32_t first = hex4();
    if (first < 0xd800 || first > 0xdfff) return first;
    if (first > 0xdbff || text_.substr(at_, 2) != "\\u") fail("half a surrogate pair");
    at_ += 2;
    const uint32_t second = hex4();
    if (second < 0xdc00 || second > 0xdfff) fail("half a surrogate pair");
    return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  }

  static void append_utf8(std::string& out, uint32_t c) {
    const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | c >> 6);
      put(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      put(0xe0 | c >> 12);
      put(0x80 | (c >> 6 & 0x3f));
      put(0x80 | (c & 0x3f));
    } else {
      put(0xf0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3f));
      put(0x80 | (c >> 6 & 0x3f));
      put(0x80 | (c & 0x3f));
    }
  }

  std::string_view text_;
  size_t most_values_;
  size_t at_ = 0, values_ = 0;
};

void dump_string(const std::string& value, std::string& out) {
  BS_CHECK(is_utf8(value), "json: a string of {} bytes is not UTF-8", value.size());
  constexpr char hex[] = "0123456789abcdef";
  out += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

template <class T>
std::string shortest_digits(T value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

/// The shortest digits that read back as the same double, and as a double.
std::string dump_double(double value) {
  if (!std::isfinite(value)) return "null";
  std::string digits = shortest_digits(value);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (length == 0 || lead > 0xf4 || i + length > text.size()) return false;
    uint32_t c = length == 1 ? lead : lead & (0x7fU >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      c = c << 6 | (next & 0x3f);
    }
    const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
    if (overlong || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff) return false;
    i += length;
  }
  return true;
}

Json Json::parse(std::string_view text) { return Parser(text).document(); }

void Json::parse_members(std::string_view text, size_t most_values,
                         const std::function<void(const std::string& name, Json)>& take) {
  Parser(text, most_values).members(take);
}

std::string Json::dump() const {
  if (const auto* value = std::get_if<bool>(&value_)) return *value ? "true" : "false";
  if (const auto* value = std::get_if<int64_t>(&value_)) return shortest_digits(*value);
  if (const auto* value = std::get_if<double>(&value_)) return dump_double(*value);
  std::string out;
  if (const auto* value = std::get_if<std::string>(&value_)) {
    dump_string(*value, out);
  } else if (const auto* items = std::get_if<Array>(&value_)) {
    for (const Json& item : *items) out += (out.empty() ? "[" : ",") + item.dump();
    out += items->empty() ? "[]" : "]";
  } else if (const auto* members = std::get_if<Object>(&value_)) {
    for (const auto& [name, member] : *members) {
      out += out.empty() ? "{" : ",";
      dump_string(name, out);
      out += ":" + member.dump();
    }
    out += members->empty() ? "{}" : "}";
  } else {
    out = "null";
  }
  return out;
}

double Json::number() const {
  if (const auto* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  return get<double>("a number");
}

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, member] : object())
    if (key == name) return &member;
  return nullptr;
}

void Json::wrong_kind(const char* expected) const {
  static constexpr const char* names[] = {"null",     "a boolean", "an integer", "a number",
                                          "a string", "an array",  "an object"};
  BS_THROW(IoError, "json: expected {}, found {}", expected, names[value_.index()]);
}

}  // namespace bs
