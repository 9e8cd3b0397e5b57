#pragma once
/** @file Philox blocks by the batch, many at a time in the lanes of vectors. */
#include <bs/kernels/cpu/parallel.h>
#include <bs/lib/integers.h>
#include <bs/lib/philox.h>
#include <bs/lib/random.h>

#include <algorithm>
#include <cstdint>

namespace bs::cpu {

/** @brief The words of consecutive blocks: `word[k][j]` is word k of block first + j. */
struct RandomWords {
  static constexpr int64_t blocks = 128;
  alignas(64) uint32_t word[4][blocks];

  void draw(RandomState state, int64_t first) {
    const PhiloxKeys<> keys(state.seed);
    for (int64_t j = 0; j < blocks; j += lanes) draw_lanes(keys, state.offset, first + j, j);
  }

  /** @brief Word k of block j to 4 * j + k, the order of the elements that they serve. */
  void in_order(uint32_t (&to)[4 * blocks]) const {
    for (int64_t j = 0; j < blocks; ++j)
      for (int k = 0; k < 4; ++k) to[4 * j + k] = word[k][j];
  }

 private:
  static constexpr int lanes = 32;  ///< of vectors that stay in registers

  /// The rounds of philox() on numbers of 64 bits, of which the upper half does not count: so no
  /// product needs to be put together from two halves.
  void draw_lanes(const PhiloxKeys<>& keys, uint64_t offset, int64_t first, int64_t at) {
    constexpr uint64_t low = 0xffffffff;
    uint64_t c[4][lanes];
    for (int j = 0; j < lanes; ++j) {
      const auto block = static_cast<uint64_t>(first + j);
      c[0][j] = block, c[1][j] = block >> 32, c[2][j] = offset, c[3][j] = offset >> 32;
    }
    for (int round = 0; round < philox_rounds; ++round)
      for (int j = 0; j < lanes; ++j) {
        const uint64_t p = 0xD2511F53 * (c[0][j] & low), q = 0xCD9E8D57 * (c[2][j] & low);
        c[0][j] = (q >> 32) ^ c[1][j] ^ keys.even[round];
        c[1][j] = q;
        c[2][j] = (p >> 32) ^ c[3][j] ^ keys.odd[round];
        c[3][j] = p;
      }
    for (int k = 0; k < 4; ++k)
      for (int j = 0; j < lanes; ++j) word[k][at + j] = static_cast<uint32_t>(c[k][j]);
  }
};

/** @brief Calls `body(words, at, count)` for all of n elements, in parallel: elements [at, at +
 *  count) are what `words`, of which each block serves `per_block` elements, is for. The first of
 *  them is served by block `first`. */
template <int per_block, class Body>
void for_random_words(int64_t n, RandomState state, Body&& body, int64_t first = 0) {
  constexpr int64_t step = RandomWords::blocks * per_block;
  parallel_for(ceil_div(n, step), elementwise_grain / step, [&](int64_t begin, int64_t end) {
    RandomWords words;
    for (int64_t s = begin; s < end; ++s) {
      words.draw(state, first + s * RandomWords::blocks);
      body(words, s * step, std::min(step, n - s * step));
    }
  });
}

}  // namespace bs::cpu
