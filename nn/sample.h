#pragma once
/** @file Text out of a language model, one token after the other. */
#include <bs/lib/random.h>
#include <bs/nn/transformer.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace bs::nn {

struct SampleOptions {
  double temperature = 1;  ///< logits are divided by it; 0 takes the likeliest class
  int top_k = 0;           ///< draw among the k likeliest only; 0: among all
};

/** @brief Draws a class from softmax(logits / temperature). Computed on the host in double: the
 * same logits and generator state give the same class on every device.
 *  @param[in] logits [classes], floating; equal ones rank by number
 *  @throws Error for a negative option, or logits among which none is finite or some are NaN. */
int64_t sample(const Tensor& logits, const SampleOptions& options = {},
               Generator& generator = default_generator());

struct GenerateOptions {
  int64_t count = 256;  ///< tokens to make
  SampleOptions sample = {};
  int64_t page = 0;  ///< tokens of a page of the caches; 0: memory for the context at once
  /** Of a model with RoPE: how many of the oldest tokens are forgotten when the context is full.
   * What was computed of the others stays, and each token is read once. Take a multiple of the
   * block, so that the pattern's blocks move as a whole. 0: all of the context is read anew. */
  int64_t slide = 0;
  /** Sees each token as soon as it is made; may be empty. */
  std::function<void(int64_t)> on_token = {};
};

/** @brief Continues `prompt`, looking at the last `context` tokens, as after eval(). Until the
 *  context is full each token is read once, with caches; then, unless the context slides, all of it
 *  for each new token. The
 *  model is not changed: several threads may call this with one model, each with its generator.
 *  @param[in] model a causal one: what fills up the context must not be seen
 *  @return the new tokens
 *  @throws Error for an empty prompt or a model that is not causal. */
std::vector<int64_t> generate(const SparseTransformer& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options = {},
                              Generator& generator = default_generator());

/** @brief Continues several prompts at once, each as generate() continues it by itself: a step
 * reads one token of every sequence. Longer prompts are read while shorter ones are continued.
 * Sequences draw from the generator in turns.
 *  @param[in] options `on_token` stays empty: it could not tell sequences apart
 *  @return the new tokens of each */
std::vector<std::vector<int64_t>> generate_batch(const SparseTransformer& model,
                                                 const std::vector<std::vector<int64_t>>& prompts,
                                                 const GenerateOptions& options = {},
                                                 Generator& generator = default_generator());

}  // namespace bs::nn
