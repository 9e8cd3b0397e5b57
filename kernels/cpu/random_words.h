#pragma once
/** @file Philox blocks by the batch, laid out so that the compiler computes many at a time. */
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
    for (int64_t j = 0; j < blocks; ++j) {
      const PhiloxBlock b = philox(state.seed, static_cast<uint64_t>(first + j), state.offset);
      for (int k = 0; k < 4; ++k) word[k][j] = b.word[k];
    }
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
