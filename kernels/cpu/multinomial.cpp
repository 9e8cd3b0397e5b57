#include <bs/kernels/cpu/random_words.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/exponential_clock.h>
#include <bs/kernels/multinomial.h>

namespace bs::cpu {

void exponential_clocks(const Tensor& weights, const Tensor& clocks, RandomState state, Stream) {
  visit_floating("multinomial", weights.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* const from = weights.data<T>();
    W* const to = clocks.data<W>();
    constexpr int per_block = sizeof(W) == 8 ? 2 : 4;
    const auto ring = [](const RandomWords& w, int64_t i, W weight) {
      const int64_t block = i / per_block, k = i % per_block;
      if constexpr (per_block == 4) {
        return exponential_clock_root(w.word[k][block], weight);
      } else {
        return exponential_clock(join(w.word[2 * k][block], w.word[2 * k + 1][block]), weight);
      }
    };
    for_random_words<per_block>(weights.numel(), state,
                                [=](const RandomWords& words, int64_t at, int64_t count) {
                                  for (int64_t i = 0; i < count; ++i)
                                    to[at + i] = ring(words, i, static_cast<W>(from[at + i]));
                                });
  });
}

}  // namespace bs::cpu
