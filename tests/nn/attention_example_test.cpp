// The examples of docs/attention.md.
#include <bs/autograd/reduce.h>
#include <bs/autograd/sparse_attention.h>
#include <bs/kernels/fill.h>
#include <bs/lib/patterns.h>
#include <bs/nn/multihead_attention.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {
Variable random(const Shape& shape, uint64_t seed, bool learnt = false) {
  return Variable(random_reference(shape, seed).tensor(f32, test_device()), learnt);
}
}  // namespace

TEST_CASE("attention.md: a pattern and options") {
  const Variable q = random({2, 4, 100, 16}, 1), k = random({2, 2, 100, 16}, 2);
  const Variable v = random({2, 2, 100, 16}, 3);
  // 100 queries and keys in 4 x 4 blocks of 32, the last of which is cut at 100.
  const LayoutPtr layout = patterns::sliding_window({.rows = 4, .block = 32}, {});
  SparseAttentionOptions options;
  options.causal = true;
  options.window_before = 40;
  options.softcap = 30;
  const Variable y = sparse_attention(q, k, v, layout, options);
  CHECK(y.shape() == Shape{2, 4, 100, 16});
}

TEST_CASE("attention.md: learnt options") {
  const Variable q = random({2, 4, 64, 16}, 1), k = random({2, 4, 64, 16}, 2);
  const Variable v = random({2, 4, 64, 16}, 3);
  const LayoutPtr layout = patterns::dense({.rows = 2, .block = 32});
  const Variable table(zeros({4, 2 * 16 + 1}, f32, test_device()), true);
  const Variable sinks(zeros({4}, f32, test_device()), true);
  const Variable y =
      sparse_attention(q, k, v, layout, {.causal = true}, {.relative_bias = table, .sinks = sinks});
  sum(y).backward();
  CHECK(table.grad().shape() == Shape{4, 33});
  CHECK(sinks.grad().shape() == Shape{4});
}

TEST_CASE("attention.md: ragged batches") {
  const Variable q = random({1, 4, 70, 16}, 1), k = random({1, 4, 70, 16}, 2);
  const Variable v = random({1, 4, 70, 16}, 3);
  // Sequences of 30, 8 and 32 tokens, one behind the other; the layout is that of the longest.
  const LayoutPtr layout = patterns::dense({.rows = 1, .block = 32});
  SparseAttentionOptions options;
  options.causal = true;
  options.query_starts = options.key_starts = {0, 30, 38, 70};
  const Variable y = sparse_attention(q, k, v, layout, options);
  CHECK(y.shape() == Shape{1, 4, 70, 16});
}

TEST_CASE("attention.md: decoding") {
  const Device device = test_device();
  nn::MultiheadAttention attention({.width = 64,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .causal = true,
                                    .rope_base = 10000,
                                    .device = device});
  attention.eval();
  const Variable prompt = random({1, 20, 64}, 1), next = random({1, 1, 64}, 2);
  nn::KVCache cache = attention.make_cache(1, 256);
  Variable y = attention.forward(prompt, cache);  // reads the prompt
  y = attention.forward(next, cache);             // and one token more
  CHECK(y.shape() == Shape{1, 1, 64});
  CHECK(cache.length() == 21);
}
