#include <bs/nn/data/alphabet.h>

#include <bs/lib/check.h>
#include <bs/lib/json.h>

#include <algorithm>
#include <bit>
#include <set>

namespace bs::data {

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<uint8_t>(text[at]);
    const auto ones = static_cast<size_t>(std::countl_one(first));  // 0: ASCII, else the length
    const size_t length = ones == 0 ? 1 : ones;
    BS_CHECK(
        ones != 1 && ones <= 4 && at + length <= text.size() && is_utf8(text.substr(at, length)),
        "alphabet: the text is not UTF-8 at byte {}", at);
    characters.push_back(text.substr(at, length));
    at += length;
  }
  return characters;
}

Alphabet Alphabet::of(std::span<const std::string> texts) {
  std::set<std::string_view> all;  // bytes of UTF-8 sort as code points do
  for (const std::string& text : texts)
    for (const std::string_view character : characters_of(text)) all.insert(character);
  std::string characters;
  for (const std::string_view character : all) characters += character;
  return Alphabet(characters);
}

Alphabet::Alphabet(std::string_view characters) {
  for (const std::string_view character : characters_of(characters)) {
    const bool added = numbers_.emplace(character, size()).second;
    BS_CHECK(added, "alphabet: '{}' comes twice", character);
    characters_.emplace_back(character);
  }
}

std::string Alphabet::text() const {
  std::string all;
  for (const std::string& character : characters_) all += character;
  return all;
}

std::vector<int64_t> Alphabet::encode(std::string_view text) const {
  std::vector<int64_t> numbers;
  for (const std::string_view character : characters_of(text)) {
    const auto found = numbers_.find(character);
    BS_CHECK(found != numbers_.end(), "alphabet: '{}' is not in it", character);
    numbers.push_back(found->second);
  }
  return numbers;
}

std::string Alphabet::decode(std::span<const int64_t> numbers) const {
  std::string text;
  for (const int64_t number : numbers) {
    BS_CHECK(number >= 0 && number < size(), "alphabet: {} is none of {} characters", number,
             size());
    text += characters_[static_cast<size_t>(number)];
  }
  return text;
}

bool Alphabet::contains(std::string_view text) const {
  return std::ranges::all_of(characters_of(text),
                             [&](std::string_view c) { return numbers_.contains(c); });
}

}  // namespace bs::data
