#pragma once
/** @file Character and word error rates. */
#include <cstdint>
#include <string_view>

namespace bs::decode {

/** @brief What it takes to turn references into hypotheses. */
struct Errors {
  int64_t substitutions = 0, insertions = 0, deletions = 0;
  int64_t length = 0;  ///< of the references

  int64_t count() const { return substitutions + insertions + deletions; }
  /** @brief Errors a reference element; may exceed 1; 0 where neither has any element. */
  double rate() const;
  Errors& operator+=(const Errors& other);
  bool operator==(const Errors&) const = default;
};

/** @brief The fewest changes of characters (code points of UTF-8); O(n m) time.
 *  @throws Error for text that is not UTF-8. */
Errors character_errors(std::string_view reference, std::string_view hypothesis);
/** @brief The same of words, which spaces separate. */
Errors word_errors(std::string_view reference, std::string_view hypothesis);

}  // namespace bs::decode
