#pragma once
/** @file Sets of block rows or columns, and how often each of them is in sets: hundreds at a time,
 *  by the widest instructions that there are. */
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace bs::cuda {

/// What compilers keep in vector registers, as wide as there are.
template <int bits>
struct BitWords {
  using Type [[gnu::vector_size(bits / 8)]] = uint64_t;
};

/** @brief Which bits each byte has, in ascending order. */
inline constexpr auto bits_of_byte = [] {
  std::array<std::array<uint16_t, 8>, 256> bits{};
  for (size_t byte = 0; byte < bits.size(); ++byte)
    for (uint16_t bit = 0, count = 0; bit < 8; ++bit)
      if ((byte >> bit & 1) != 0) bits[byte][count++] = bit;
  return bits;
}();

/** @brief A set of numbers less than `most`, a bit each. */
template <int most>
struct BitSet {
  using Words = typename BitWords<most>::Type;
  static constexpr int count = most / 64;
  static constexpr size_t listed = most + 8;  ///< what list() may write
  Words words{};

  bool has(int i) const { return (words[i / 64] >> i % 64 & 1) != 0; }
  void put(int i) { words[i / 64] |= uint64_t{1} << i % 64; }
  void remove(int i) { words[i / 64] &= ~(uint64_t{1} << i % 64); }
  /// Adds those of 64 numbers from `at` on that have a bit; all others are left out.
  void put_word(int at, uint64_t bits) {
    const int w = at >> 6, shift = at & 63;
    if (w >= 0 && w < count) words[w] |= bits << shift;
    if (shift != 0 && w >= -1 && w + 1 < count) words[w + 1] |= bits >> (64 - shift);
  }
  int size() const {
    int sum = 0;
    for (int w = 0; w < count; ++w) sum += std::popcount(words[w]);
    return sum;
  }
  /// The least one; -1: there is none.
  int first() const {
    for (int w = 0; w < count; ++w)
      if (words[w] != 0) return w * 64 + std::countr_zero(words[w]);
    return -1;
  }
  /// Leaves the least ones, `most_left` at most.
  void keep_first(int most_left) {
    for (int w = 0; w < count; ++w) {
      const int have = std::popcount(words[w]);
      if (have > most_left) {
        uint64_t rest = words[w];
        for (; most_left > 0; --most_left) rest &= rest - 1;
        words[w] ^= rest;
      } else {
        most_left -= have;
      }
    }
  }
  /// Writes them to `to` in ascending order, and up to eight others behind them. Byte by byte: how
  /// many there are is not foreseen.
  uint16_t* list(uint16_t* to) const {
    for (int w = 0; w < count; ++w) {
      if (words[w] == 0) continue;
      for (int byte = 0; byte < 64; byte += 8) {
        const uint64_t bits = words[w] >> byte & 255;
        const auto from = static_cast<uint16_t>(w * 64 + byte);
        for (size_t i = 0; i < 8; ++i) to[i] = static_cast<uint16_t>(from + bits_of_byte[bits][i]);
        to += std::popcount(bits);
      }
    }
    return to;
  }
};

/** @brief How often each number less than `most` was in sets, all counted at once: the binary
 * digits of the counts are a set each. */
template <int most>
class BitCounts {
 public:
  using Set = BitSet<most>;
  using Words = typename Set::Words;

  /// Counts at(0), at(1), ... of whole eights, which are sets; each is asked for once.
  template <class At>
  void add(size_t eights, const At& at) {
    added_ += 8 * eights;
    for (; used_ < 3 || added_ >> used_ != 0; ++used_) digits_[used_] = Words{};
    Words ones = digits_[0], twos = digits_[1], fours = digits_[2];
    for (size_t i = 0; i < 8 * eights; i += 8) {
      Words a, b, c, d, carried;
      sum(ones, at(i), at(i + 1), a);
      sum(ones, at(i + 2), at(i + 3), b);
      sum(twos, a, b, c);
      sum(ones, at(i + 4), at(i + 5), a);
      sum(ones, at(i + 6), at(i + 7), b);
      sum(twos, a, b, d);
      sum(fours, c, d, carried);
      for (size_t digit = 3; digit < used_; ++digit) {
        const Words both = digits_[digit] & carried;
        digits_[digit] ^= carried;
        carried = both;
      }
    }
    digits_[0] = ones;
    digits_[1] = twos;
    digits_[2] = fours;
  }
  /// Leaves of a set those that were counted most often. Word by word and without a branch: which
  /// digits decide is not foreseen, and to ask a vector whether it is empty takes longer.
  void keep_greatest(Set& of) const {
    std::array<uint64_t, Set::count> left, high;
    for (size_t w = 0; w < left.size(); ++w) left[w] = of.words[w];
    for (size_t digit = used_; digit-- > 0;) {
      uint64_t any = 0;
      for (size_t w = 0; w < left.size(); ++w) any |= high[w] = left[w] & digits_[digit][w];
      for (size_t w = 0; w < left.size(); ++w) left[w] = any == 0 ? left[w] : high[w];
    }
    for (size_t w = 0; w < left.size(); ++w) of.words[w] = left[w];
  }

 private:
  /// Adds x and y to a digit; what is carried to the next one.
  static void sum(Words& digit, const Set& x, const Set& y, Words& carried) {
    return sum(digit, x.words, y.words, carried);
  }
  static void sum(Words& digit, const Words& x, const Words& y, Words& carried) {
    const Words differ = x ^ y;
    carried = (x & y) | (differ & digit);
    digit ^= differ;
  }

  std::array<Words, 32> digits_;  // written up to used_
  size_t added_ = 0, used_ = 0;   // sets, and digits that their number has
};

}  // namespace bs::cuda
