#pragma once
/** @file The baseline: what the byte before tells of the next. */
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace bs::example {

/** @brief A bigram model of bytes, counted, with Witten-Bell interpolation:
 *  p(b | a) = (c(ab) + t(a) p(b)) / (c(a) + t(a)), where t(a) different bytes follow a in the text,
 *  and p(b) = (c(b) + 1) / (n + 256) (Witten, Bell, 1991). */
class Bigram {
 public:
  explicit Bigram(std::span<const uint8_t> text);
  /** @brief p(next | before); never zero. */
  double probability(uint8_t before, uint8_t next) const;
  /** @brief Mean of -ln p over all bytes of `text` but the first; 0 for less than two. */
  double loss(std::span<const uint8_t> text) const;

 private:
  static constexpr size_t bytes = 256;
  std::vector<int64_t> pairs_ = std::vector<int64_t>(bytes * bytes);  ///< c(ab) at a * 256 + b
  std::array<int64_t, bytes> before_{};     ///< c(a), where a byte follows
  std::array<int64_t, bytes> followers_{};  ///< t(a)
  std::array<double, bytes> single_{};      ///< p(b)
};

}  // namespace bs::example
