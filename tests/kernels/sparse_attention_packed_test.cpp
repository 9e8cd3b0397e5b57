// Attention under packed masks against one score at a time in double, and against masks of bytes.
#include <bs/autograd/sparse_attention.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/integers.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/sparse_attention_rules.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// Some of the blocks see nothing, some see all, and some see half.
Reference mixed_mask(const Shape& shape, int block, uint64_t seed) {
  const Reference kinds = random_reference(
      {shape[0], shape[1], shape[2] / block + 1, shape[3] / block + 1}, seed, 0, 3);
  Reference mask = random_reference(shape, seed + 1);
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t i = 0; i < shape[2]; ++i)
        for (int64_t j = 0; j < shape[3]; ++j) {
          const double kind = std::floor(kinds.at({b, h, i / block, j / block}));
          double& seen = mask.at({b, h, i, j});
          seen = kind == 0 ? 0 : kind == 1 ? 1 : seen > 0;
        }
  return mask;
}

struct Sizes {
  int64_t batch, heads, kv_heads, queries, keys;
};

void check(const std::string& name, const Sizes& s, AttentionRules r, const Reference& mask) {
  r.mask = mask;
  const PackedMask packed = pack_mask(mask.tensor(boolean, test_device()), r.layout->block());
  check_op({.name = name,
            .inputs = {{s.batch, s.heads, s.queries, 16},
                       {s.batch, s.kv_heads, s.keys, 16},
                       {s.batch, s.kv_heads, s.keys, 8}},
            .op =
                [&](const Variables& v) {
                  SparseAttentionOptions o = r.options();
                  o.mask = {};
                  o.packed_mask = packed;
                  return sparse_attention(v[0], v[1], v[2], r.layout, o);
                },
            .reference = [&](const References& in) { return attend(r, in); },
            .steps = 32,
            .dtypes = {f64, f32, f16, bf16}});
}

LayoutPtr dense(int64_t queries, int64_t keys, int block) {
  const auto blocks = [block](int64_t n) { return static_cast<int>(ceil_div(n, block)); };
  return patterns::dense({.rows = blocks(queries), .cols = blocks(keys), .block = block});
}

}  // namespace

TEST_CASE("sparse_attention: packed masks of one head, of each head, and of each entry") {
  for (const int block : {8, 16, 32}) {
    CAPTURE(block);
    const int64_t queries = 2 * block + 3, keys = 2 * block - 5;
    const LayoutPtr layout = dense(queries, keys, block);
    check("one", {2, 2, 1, queries, keys}, {layout}, mixed_mask({1, 1, queries, keys}, block, 1));
    check("heads", {2, 2, 2, queries, keys}, {layout}, mixed_mask({1, 2, queries, keys}, block, 2));
    check("entries", {2, 2, 2, queries, keys}, {layout},
          mixed_mask({2, 2, queries, keys}, block, 3));
  }
  check("128", {1, 1, 1, 130, 140}, {dense(130, 140, 128)}, mixed_mask({1, 1, 130, 140}, 128, 4));
}

TEST_CASE("sparse_attention: packed masks go with other rules") {
  AttentionRules r{dense(21, 37, 8)};
  r.plain.causal = true;
  r.plain.offset = 12;
  r.plain.window_before = 19;
  r.plain.softcap = 3;
  check("band", {2, 2, 1, 21, 37}, r, mixed_mask({1, 2, 21, 37}, 8, 5));
}

TEST_CASE("sparse_attention: a packed mask counts by places of the layout") {
  const Reference mask = mixed_mask({1, 2, 40, 40}, 8, 6);
  const Tensor q = random_reference({2, 2, 40, 16}, 1).tensor(f32, test_device());
  const Tensor k = random_reference({2, 2, 40, 16}, 2).tensor(f32, test_device());
  SparseAttentionOptions o;
  o.packed_mask = pack_mask(mask.tensor(boolean, test_device()), 8);
  const LayoutPtr layout = o.packed_mask.layout();
  const Reference all = Reference::of(sparse_attention(q, k, k, layout, o).out);
  o.first_query = 13;  // its row of the mask, where fewer queries are given
  const Reference part = Reference::of(sparse_attention(q.slice(2, 13, 30), k, k, layout, o).out);
  double worst = 0;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 17; ++i)
        for (int64_t e = 0; e < 16; ++e)
          worst = std::max(worst, std::abs(part.at({b, h, i, e}) - all.at({b, h, 13 + i, e})));
  CHECK(worst <= 1e-6);
}

TEST_CASE("sparse_attention: a packed mask gives the bits that a mask of bytes gives") {
  const int64_t n = 75;
  const Reference mask = mixed_mask({1, 2, n, n}, 16, 7);
  const Tensor q = random_reference({1, 2, n, 32}, 1).tensor(f32, test_device());
  const Tensor k = random_reference({1, 2, n, 32}, 2).tensor(f32, test_device());
  SparseAttentionOptions bytes, packed;
  bytes.mask = mask.tensor(boolean, test_device());
  packed.packed_mask = pack_mask(bytes.mask, 16);
  const LayoutPtr layout = packed.packed_mask.layout();
  const SparseAttentionResult a = sparse_attention(q, k, k, layout, bytes);
  const SparseAttentionResult b = sparse_attention(q, k, k, layout, packed);
  CHECK(same_bits(a.out, b.out));
  const SparseAttentionGradients g = sparse_attention_backward(q, k, k, a, q, layout, bytes);
  const SparseAttentionGradients h = sparse_attention_backward(q, k, k, b, q, layout, packed);
  CHECK(same_bits(g.dq, h.dq));
  CHECK(same_bits(g.dk, h.dk));
  CHECK(same_bits(g.dv, h.dv));
}

TEST_CASE("sparse_attention refuses a packed mask of other blocks") {
  const Tensor q = Tensor::empty({1, 2, 16, 8}, f32, test_device());
  SparseAttentionOptions o;
  o.packed_mask = pack_mask(zeros({3, 16, 16}, boolean, test_device()), 8);
  CHECK_THROWS_WITH_AS(sparse_attention(q, q, q, dense(16, 16, 8), o),
                       "sparse_attention: packed_mask of 3 heads of 2 x 2 blocks of 8 for 2 heads "
                       "of 2 x 2 blocks of 8",
                       Error);
}
