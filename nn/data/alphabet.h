#pragma once
/** @file Text as a sequence of character numbers. */
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bs::data {

/** @brief The characters (code points of UTF-8) that a text is made of, numbered from 0. */
class Alphabet {
 public:
  /** @brief All characters of the texts in the order of their code points.
   *  @throws Error for text that is not UTF-8. */
  static Alphabet of(std::span<const std::string> texts);
  /** @brief The characters of a text in their order there: what text() gave.
   *  @throws Error for one that comes twice, or text that is not UTF-8. */
  explicit Alphabet(std::string_view characters);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  /** @brief All characters in order. */
  std::string text() const;
  /** @throws Error for a character that is not in the alphabet. */
  std::vector<int64_t> encode(std::string_view text) const;
  /** @throws Error for a number that is none of a character. */
  std::string decode(std::span<const int64_t> numbers) const;
  bool contains(std::string_view text) const;

 private:
  std::vector<std::string> characters_;
  std::map<std::string, int64_t, std::less<>> numbers_;
};

/** @brief The code points of a text, each as its bytes. @throws Error for text that is not UTF-8.
 */
std::vector<std::string_view> characters_of(std::string_view text);

}  // namespace bs::data
