#pragma once
/** @file Sets of block rows or columns, and how often each of them is in sets: hundreds at a time,
 *  by the widest instructions that there are. */
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace bs::cuda {

/// What compilers keep in vector registers, as wide as there are.
template <int bits>
struct BitWords;
template <>
struct BitWords<64> {
  using Type [[gnu::vector_size(8)]] = uint64_t;
};
template <>
struct BitWords<128> {
  using Type [[gnu::vector_size(16)]] = uint64_t;
};
template <>
struct BitWords<256> {
  using Type [[gnu::vector_size(32)]] = uint64_t;
};
template <>
struct BitWords<512> {
  using Type [[gnu::vector_size(64)]] = uint64_t;
};

/** @brief A set of numbers less than `most`, a bit each. */
template <int most>
struct BitSet {
  using Words = typename BitWords<most>::Type;
  static constexpr int count = most / 64;
  static constexpr size_t listed = most + 4;  ///< what list() may write
  Words words{};

  bool has(int i) const { return (words[i / 64] >> i % 64 & 1) != 0; }
  void put(int i) { words[i / 64] |= uint64_t{1} << i % 64; }
  void remove(int i) { words[i / 64] &= ~(uint64_t{1} << i % 64); }
  bool any() const {  // by halves: compilers take a vector apart word by word
    Words all = words;
    if constexpr (count > 1) join_halves(all, std::make_index_sequence<count>());
    uint64_t some = 0;
    for (int w = 0; w < (count + 1) / 2; ++w) some |= all[w];
    return some != 0;
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
      uint64_t rest = words[w];
      for (; rest != 0 && most_left > 0; --most_left) rest &= rest - 1;
      words[w] ^= rest;
    }
  }
  /// Writes them to `to` in ascending order, and up to three more behind them.
  int* list(int* to) const {
    for (int w = 0; w < count; ++w) {
      uint64_t left = words[w];
      int* const end = to + std::popcount(left);
      while (to < end)  // by fours: how many there are is not foreseen
        for (int i = 0; i < 4; ++i, left &= left - 1) *to++ = w * 64 + std::countr_zero(left);
      to = end;
    }
    return to;
  }

 private:
  template <size_t... i>
  static void join_halves(Words& all, std::index_sequence<i...>) {
    all |= __builtin_shufflevector(all, all, (i + count / 2) % count...);
  }
};

/** @brief How often each number less than `most` was in sets, all counted at once: the binary
 * digits of the counts are a set each. */
template <int most>
class BitCounts {
 public:
  using Set = BitSet<most>;

  /// Counts at(0), at(1), ... which are sets.
  template <class At>
  void add(size_t sets, const At& at) {
    static const Set none;
    added_ += sets;
    for (; used_ < 3 || added_ >> used_ != 0; ++used_) digits_[used_] = {};
    Set ones = digits_[0], twos = digits_[1], fours = digits_[2];
    const auto eight = [&](const auto& x) {
      Set a, b, c, d, carried;
      sum(ones, x(0), x(1), a);
      sum(ones, x(2), x(3), b);
      sum(twos, a, b, c);
      sum(ones, x(4), x(5), a);
      sum(ones, x(6), x(7), b);
      sum(twos, a, b, d);
      sum(fours, c, d, carried);
      for (size_t digit = 3; digit < used_; ++digit) {
        const Set both{digits_[digit].words & carried.words};
        digits_[digit].words ^= carried.words;
        carried = both;
      }
    };
    size_t i = 0;
    for (; i + 8 <= sets; i += 8) eight([&](size_t j) -> const Set& { return at(i + j); });
    if (i < sets) eight([&](size_t j) -> const Set& { return i + j < sets ? at(i + j) : none; });
    digits_[0] = ones;
    digits_[1] = twos;
    digits_[2] = fours;
  }
  /// One number was there so often, no more than it was.
  void set(int i, size_t times) {
    for (size_t digit = 0; digit < used_; ++digit) {
      digits_[digit].remove(i);
      digits_[digit].words[i / 64] |= static_cast<uint64_t>(times >> digit & 1) << i % 64;
    }
  }
  /// Those that were counted at all.
  Set counted() const {
    Set all;
    for (size_t digit = 0; digit < used_; ++digit) all.words |= digits_[digit].words;
    return all;
  }
  /// Leaves of a set those that were counted most often.
  void keep_greatest(Set& of) const {
    for (size_t digit = used_; digit-- > 0;) {
      const Set with{of.words & digits_[digit].words};
      if (with.any()) of = with;
    }
  }
  /// Leaves of a set those that were counted so many times, of no more than there were sets.
  void keep_equal(Set& of, size_t times) const {
    for (size_t digit = 0; digit < used_; ++digit)
      of.words &= (times >> digit & 1) != 0 ? digits_[digit].words : ~digits_[digit].words;
  }

 private:
  /// Adds x and y to a digit; what is carried to the next one.
  static void sum(Set& digit, const Set& x, const Set& y, Set& carried) {
    const Set differ{x.words ^ y.words};
    carried.words = (x.words & y.words) | (differ.words & digit.words);
    digit.words ^= differ.words;
  }

  std::array<Set, 32> digits_;
  size_t added_ = 0, used_ = 0;  // sets, and digits that their number has
};

}  // namespace bs::cuda
