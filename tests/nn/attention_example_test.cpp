// The examples of docs/attention.md.
#include <bs/autograd/reduce.h>
#include <bs/autograd/sparse_attention.h>
#include <bs/kernels/block_topk.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/logic.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/patterns.h>
#include <bs/nn/multihead_attention.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>

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

TEST_CASE("attention.md: a pattern of scores") {
  const Variable q = random({2, 4, 128, 32}, 1), k = random({2, 4, 128, 32}, 2);
  const Variable v = random({2, 4, 128, 32}, 3);
  // Means of blocks of queries and keys score the blocks; each row keeps 3, its own among them.
  const auto means = [](const Variable& x) {
    return mean(x.data().view({2, 4, 8, 16, 32}), Dims{3});
  };
  const Tensor scores = matmul(means(q), means(k).transpose(-2, -1));
  const LayoutPtr layout = block_topk(scores, 3, {.block = 16, .causal = true, .local_blocks = 1});
  const Variable y = sparse_attention(q, k, v, layout, {.causal = true});
  CHECK(y.shape() == Shape{2, 4, 128, 32});
  CHECK(layout->nnz() == 8 * (1 + 2 + 6 * 3));
}

TEST_CASE("attention.md: a packed mask") {
  const Variable q = random({1, 4, 100, 16}, 1), k = random({1, 4, 100, 16}, 2);
  const Variable v = random({1, 4, 100, 16}, 3);
  // Tokens see their own document, up to themselves.
  const std::vector<int64_t> starts = {0, 30, 38, 100};
  const auto document = [&](int64_t i) {
    return std::upper_bound(starts.begin(), starts.end(), i) - starts.begin();
  };
  const LayoutPtr blocks = patterns::documents(starts, 32, {.causal = true});
  SparseAttentionOptions options;
  const auto sees = [&](int64_t, int64_t i, int64_t j) {
    return j <= i && document(i) == document(j);
  };
  options.packed_mask = pack_mask(blocks, 100, 100, sees, q.device());
  const Variable y = sparse_attention(q, k, v, options.packed_mask.layout(), options);
  CHECK(y.shape() == Shape{1, 4, 100, 16});
  // The same documents as a ragged batch.
  SparseAttentionOptions ragged{.causal = true};
  ragged.query_starts = ragged.key_starts = starts;
  const LayoutPtr dense = patterns::dense({.rows = 2, .block = 32});
  CHECK(allclose(sparse_attention(q, k, v, dense, ragged).data(), y.data(), {.atol = 1e-6}));
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
