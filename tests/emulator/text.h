#pragma once
/** @file Pieces of PTX text. */
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bs::emulator {

std::string_view trimmed(std::string_view text);
std::vector<std::string_view> words_of(std::string_view text);
/** @brief What stands between commas that are in no brackets. */
std::vector<std::string_view> split(std::string_view text, char by = ',');
/** @brief Without what stands around it. */
std::string_view inside_of_brackets(std::string_view text);
/** @brief An integer of any base, or the bits of a float, `0f` or `0d`. */
uint64_t number_of(std::string_view text);
bool is_name(char c);
std::string without_comments(std::string_view text);
/** @brief Bytes of a type such as b32. */
size_t size_of_type(std::string_view type);
/** @brief `name[3][4]` in two: the name, and the elements; 1 where it has no brackets. */
struct Declared {
  std::string name;
  size_t elements = 1;
};
Declared declared(std::string_view text);

}  // namespace bs::emulator
