#pragma once
/** @file A short series of random numbers that is a function of two numbers. */
#include <bs/kernels/distribution.h>

#include <span>
#include <utility>

namespace bs::data {

/** @brief Draw number n of the series (key, sequence) is the same on every machine and thread. So
 *  augmented data can be made anywhere, in any order, again. */
class Draws {
 public:
  Draws(uint64_t key, uint64_t sequence) : key_(key), sequence_(sequence) {}
  /** @brief 64 random bits. */
  uint64_t bits() {
    const PhiloxBlock block = philox(key_, next_++, sequence_);
    return join(block.word[0], block.word[1]);
  }
  /** @brief A number in [0, 1). */
  double uniform() { return unit_interval<53>(bits()); }
  /** @brief One of 0 .. range - 1; 0 when there is nothing to choose from. */
  int64_t below(int64_t range) {
    return range > 1 ? static_cast<int64_t>(bs::below(bits(), static_cast<uint64_t>(range))) : 0;
  }

 private:
  uint64_t key_, sequence_, next_ = 0;
};

/** @brief Puts numbers in an order that the draws give, each as likely (Fisher and Yates). */
inline void shuffle(std::span<int64_t> numbers, Draws& draws) {
  for (size_t i = numbers.size(); i > 1; --i)
    std::swap(numbers[i - 1], numbers[static_cast<size_t>(draws.below(static_cast<int64_t>(i)))]);
}

}  // namespace bs::data
