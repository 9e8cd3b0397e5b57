#include <bs/autograd/sparse_attention.h>
#include <bs/kernels/copy.h>
#include <bs/lib/memory.h>
#include <bs/lib/patterns.h>
#include <bs/lib/threads.h>
#include <bs/tests/kernels/sparse_attention_reference.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <limits>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

/// Every head has a pattern of its own; the last row and the last column of head 0 are empty.
LayoutPtr random_layout(int heads, int rows, int cols, int block, double density, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<BlockIndex> blocks;
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) {
        const bool wanted = static_cast<double>(generator() % 1000) < 1000 * density;
        const bool emptied = h == 0 && rows > 1 && cols > 1 && (i == rows - 1 || j == cols - 1);
        if (wanted && !emptied) blocks.push_back({h, i, j});
      }
  return Layout::from_blocks(heads, rows, cols, block, blocks);
}

LayoutPtr dense_layout(int rows, int cols, int block) {
  return patterns::dense({.rows = rows, .cols = cols, .block = block});
}

struct Sizes {
  int64_t batch = 2, heads = 2, kv_heads = 2, head_dim = 16;
};

void check_pattern(const std::string& name, const Sizes& s, const Pattern& pattern) {
  const Layout& l = *pattern.layout;
  const Visible visible = pattern.visible(s.batch, s.heads);
  check_op({.name = name,
            .inputs = {{s.batch, s.heads, l.height(), s.head_dim},
                       {s.batch, s.kv_heads, l.width(), s.head_dim},
                       {s.batch, s.kv_heads, l.width(), s.head_dim}},
            .op =
                [&](const Variables& v) {
                  return sparse_attention(v[0], v[1], v[2], pattern.layout, pattern.options());
                },
            .reference = [&](const References& in) { return attend(in, pattern, visible); }});
}

void check_near(const std::string& what, const Tensor& actual, const Reference& expected,
                double steps) {
  const double allowed = steps * epsilon(actual.dtype()) * std::max(1e-3, largest(expected));
  check_close(what, Reference::of(actual), expected, allowed);
}

/// Multiples of 1/64 in [-1, 1], which every floating dtype holds exactly.
Reference coarse(const Shape& shape, uint64_t seed) {
  Reference r = random_reference(shape, seed);
  for (double& v : r.values) v = std::round(v * 64) / 64;
  return r;
}

Tensor coarse(const Shape& shape, uint64_t seed, DType dtype) {
  return coarse(shape, seed).tensor(dtype, test_device());
}

/// Forward and backward against the naive formulas, for shapes too large for differences. An error
/// of one step in a score of size s is one of s steps in its weight: `steps` grows with the scores.
void check_formulas(const std::string& name, const Sizes& s, const Pattern& pattern,
                    const std::vector<DType>& dtypes, double steps = 16) {
  const Layout& l = *pattern.layout;
  const Shape q_shape{s.batch, s.heads, l.height(), s.head_dim};
  const Shape k_shape{s.batch, s.kv_heads, l.width(), s.head_dim};
  const References in = {coarse(q_shape, 1), coarse(k_shape, 2), coarse(k_shape, 3)};
  const Reference dout = coarse(q_shape, 4);
  const Visible visible = pattern.visible(s.batch, s.heads);
  const Reference out = attend(in, pattern, visible);
  const References gradients = attend_backward(in, dout, pattern, visible);
  const auto options = pattern.options();
  for (const DType dtype : dtypes) {
    std::vector<Tensor> t;
    for (const Reference& r : {in[0], in[1], in[2], dout})
      t.push_back(r.tensor(dtype, test_device()));
    const auto forward = sparse_attention(t[0], t[1], t[2], pattern.layout, options);
    const SparseAttentionGradients g =
        sparse_attention_backward(t[0], t[1], t[2], forward, t[3], pattern.layout, options);
    const std::string what = name + " " + to_string(dtype);
    check_near(what, forward.out, out, steps);
    check_near(what + " dq", g.dq, gradients[0], steps);
    check_near(what + " dk", g.dk, gradients[1], steps);
    check_near(what + " dv", g.dv, gradients[2], steps);
  }
}

/// [batch, sequence, heads * head_dim] of a packed projection, part 0 to 2, as [b, h, s, d].
Reference part(const Reference& qkv, int64_t heads, int64_t which) {
  const int64_t head_dim = qkv.shape[2] / (3 * heads);
  Reference r({qkv.shape[0], heads, qkv.shape[1], head_dim});
  for (int64_t b = 0; b < r.shape[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < r.shape[2]; ++i)
        for (int64_t d = 0; d < head_dim; ++d)
          r.at({b, h, i, d}) = qkv.at({b, i, (which * heads + h) * head_dim + d});
  return r;
}

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

const bool on_cpu = test_device().is_cpu();

}  // namespace

TEST_CASE("sparse_attention: patterns") {
  check_pattern("one block", {1, 1, 1, 8}, {dense_layout(1, 1, 8)});
  check_pattern("heads of their own", {}, {random_layout(2, 3, 3, 8, .6, 1)});
  check_pattern("one pattern for all heads", {2, 3, 3, 8}, {random_layout(1, 3, 3, 16, .5, 2)});
  check_pattern("more keys than queries", {}, {random_layout(2, 2, 5, 8, .5, 3)});
  check_pattern("more queries than keys", {}, {random_layout(2, 5, 2, 8, .5, 4)});
  check_pattern("no blocks at all", {1, 2, 2, 8}, {random_layout(2, 2, 2, 8, 0, 5)});
  check_pattern("given scale", {1, 2, 2, 8}, {random_layout(2, 3, 3, 8, .6, 6), false, {}, .7});
}

TEST_CASE("sparse_attention: masks inside blocks") {
  check_pattern("causal", {}, {dense_layout(3, 3, 8), true});
  check_pattern("causal, sparse", {1, 2, 2, 8}, {random_layout(2, 4, 4, 16, .5, 7), true});
  check_pattern("causal, more keys", {1, 2, 2, 8}, {dense_layout(2, 4, 8), true});
  check_pattern("causal, more queries", {1, 2, 2, 8}, {dense_layout(4, 2, 8), true});
  check_pattern("padding", {3, 2, 2, 8}, {random_layout(2, 3, 3, 8, .8, 8), false, {24, 11, 0}});
  check_pattern("padding, causal", {2, 2, 2, 8}, {dense_layout(3, 3, 8), true, {17, 1}});
}

TEST_CASE("sparse_attention: heads that share keys and values") {
  check_pattern("groups of two", {2, 4, 2, 8}, {random_layout(4, 3, 3, 8, .6, 9), true});
  check_pattern("one for all", {1, 3, 1, 8}, {random_layout(1, 3, 3, 8, .6, 10)});
}

TEST_CASE("sparse_attention: head_dims") {
  for (const int64_t head_dim : {8, 24, 64})
    check_pattern("head_dim " + std::to_string(head_dim), {1, 2, 2, head_dim},
                  {random_layout(2, 2, 2, 8, .7, 11), true});
  if (on_cpu)
    for (const int64_t head_dim : {1, 3, 13, 20})
      check_pattern("head_dim " + std::to_string(head_dim), {1, 2, 2, head_dim},
                    {random_layout(2, 3, 3, 8, .7, 12)});
}

TEST_CASE("sparse_attention: all blocks, head_dims and dtypes") {
  for (const int block : {8, 16, 32, 64, 128})
    for (const int64_t head_dim : {8, 24, 64, 80, 128}) {
      const int rows = std::max(2, 80 / block + 1);
      Pattern pattern{random_layout(2, rows, rows, block, .6, 13), head_dim == 24};
      if (head_dim == 80) pattern.lengths = {rows * block - 5};
      check_formulas("block " + std::to_string(block) + " head_dim " + std::to_string(head_dim),
                     {1, 2, 2, head_dim}, pattern, {f32, f16, bf16});
    }
}

TEST_CASE("sparse_attention: extremes of large blocks") {
  for (const int block : {64, 128})
    for (const int64_t head_dim : {64, 128}) {
      if (sanitized && block == head_dim) continue;
      const std::string size = format("block {}, head_dim {}: ", block, head_dim);
      const Sizes one{1, 1, 1, head_dim}, grouped{2, 4, 2, head_dim};
      const auto some = [&](std::vector<BlockIndex> blocks) {
        return Layout::from_blocks(1, 3, 3, block, std::move(blocks));
      };
      check_formulas(size + "one block", one, {dense_layout(1, 1, block)}, {f16, bf16});
      check_formulas(size + "all blocks", one, {dense_layout(2, 3, block)}, {f16, bf16});
      check_formulas(size + "one row has all", grouped, {some({{0, 1, 0}, {0, 1, 1}, {0, 1, 2}})},
                     {f16, bf16});
      check_formulas(size + "one column has all", one, {some({{0, 0, 1}, {0, 1, 1}, {0, 2, 1}})},
                     {f16, bf16});
      check_formulas(size + "empty row and column", one, {some({{0, 0, 0}, {0, 2, 0}, {0, 2, 2}})},
                     {f16, bf16});
      check_formulas(size + "causal", grouped, {dense_layout(3, 3, block), true}, {f16, bf16});
      check_formulas(size + "causal, above the diagonal alone", one,
                     {some({{0, 0, 1}, {0, 0, 2}, {0, 1, 2}}), true}, {f16, bf16});
      check_formulas(size + "padding", {2, 2, 1, head_dim},
                     {random_layout(2, 3, 3, block, .6, 21), true, {3 * block - 5, block + 1}},
                     {f16, bf16});
    }
}

TEST_CASE("sparse_attention: rows and columns longer than what is held at once") {
  check_formulas("rows", {1, 1, 1, 16}, {random_layout(1, 3, 90, 32, .9, 14)}, {f32, bf16});
  check_formulas("columns", {1, 1, 1, 16}, {random_layout(1, 90, 3, 32, .9, 15)}, {f32, bf16});
  check_formulas("rows of small blocks", {1, 1, 1, 8}, {random_layout(1, 9, 700, 8, .3, 16)},
                 {f32, bf16});
}

TEST_CASE("sparse_attention: large scores do not overflow") {
  const double scale = 40;  // scores up to 40 * 8
  check_formulas("large", {1, 2, 2, 8}, {dense_layout(4, 4, 16), true, {}, scale}, {f64, f32},
                 scale * 8);
  for (const int block : {64, 128})
    for (const int64_t head_dim : {64, 128})
      check_formulas(format("large, block {}, head_dim {}", block, head_dim), {1, 1, 1, head_dim},
                     {dense_layout(2, 2, block), true, {}, 8}, {f32, f16, bf16}, 64);
}

TEST_CASE("sparse_attention: scores may leap from block to block") {
  // By a leap of 200 the weights of a block, made as the block before asks, are infinite in f32.
  // By one of 87 to 89 they are the greatest that are not.
  for (const int block : {64, 128})
    for (const int64_t head_dim : {64, 128})
      for (const double leap : {10., 50., 86., 87., 87.6, 88., 89., 200., -200.}) {
        const int64_t n = 3 * block;
        const Shape shape{1, 1, n, head_dim};
        References in = {random_reference(shape, 41), random_reference(shape, 42),
                         random_reference(shape, 43)};
        for (int64_t i = 0; i < n; ++i) {
          in[0].at({0, 0, i, 0}) = 1;
          in[1].at({0, 0, i, 0}) = leap * static_cast<double>(i / block);
        }
        for (const DType dtype : {f16, bf16}) {
          std::vector<Tensor> x;
          for (Reference& of : in) {
            x.push_back(of.tensor(dtype, test_device()));
            of = Reference::of(x.back());
          }
          const Pattern pattern{dense_layout(3, 3, block), false, {}, 1};
          const auto y = sparse_attention(x[0], x[1], x[2], pattern.layout, pattern.options());
          const Reference want = attend(in, pattern, pattern.visible(1, 1));
          check_close(format("block {}, head_dim {}, leap {}", block, head_dim, leap),
                      Reference::of(y.out), want, 4 * epsilon(dtype));
        }
      }
}

TEST_CASE("sparse_attention of a packed projection") {
  const int heads = 3;
  const Pattern pattern{random_layout(heads, 3, 3, 8, .6, 16), true, {24, 10}};
  const Visible visible = pattern.visible(2, heads);
  check_op({.name = "sparse_attention_qkv",
            .inputs = {{2, 24, 3 * heads * 8}},
            .op =
                [&](const Variables& v) {
                  return sparse_attention_qkv(v[0], heads, pattern.layout, pattern.options());
                },
            .reference =
                [&](const References& in) {
                  const Reference y =
                      attend({part(in[0], heads, 0), part(in[0], heads, 1), part(in[0], heads, 2)},
                             pattern, visible);
                  Reference merged({2, 24, heads * 8});
                  for (int64_t b = 0; b < 2; ++b)
                    for (int64_t h = 0; h < heads; ++h)
                      for (int64_t i = 0; i < 24; ++i)
                        for (int64_t d = 0; d < 8; ++d)
                          merged.at({b, i, h * 8 + d}) = y.at({b, h, i, d});
                  return merged;
                }});
}

TEST_CASE("sparse_attention takes views as they are") {
  const auto layout = random_layout(2, 4, 4, 8, .6, 17);
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor qkv = coarse({2, 32, 3 * 2 * 16}, 18, dtype);
    const Tensor heads = qkv.view({2, 32, 3, 2, 16}).permute({2, 0, 3, 1, 4});
    const Tensor q = heads.select(0, 0), k = heads.select(0, 1), v = heads.select(0, 2);
    const Tensor dout = coarse({2, 32, 2, 16}, 19, dtype).permute({0, 2, 1, 3});
    const auto a = sparse_attention(q, k, v, layout);
    const auto b = sparse_attention(contiguous(q), contiguous(k), contiguous(v), layout);
    CHECK(values(a.out) == values(b.out));
    CHECK(values(a.lse) == values(b.lse));
    CHECK(a.out.permute({0, 2, 1, 3}).is_contiguous());
    const auto da = sparse_attention_backward(q, k, v, a, dout, layout);
    const auto db = sparse_attention_backward(contiguous(q), contiguous(k), contiguous(v), b,
                                              contiguous(dout), layout);
    CHECK(values(da.dq) == values(db.dq));
    CHECK(values(da.dk) == values(db.dk));
    CHECK(values(da.dv) == values(db.dv));

    const auto packed = sparse_attention_qkv(qkv, 2, layout);
    CHECK(packed.out.is_contiguous());
    const Tensor joined = a.out.permute({0, 2, 1, 3}).flatten(2, 3);
    CHECK(values(packed.out) == values(joined));
    const Tensor dqkv = sparse_attention_qkv_backward(
        qkv, 2, packed, dout.permute({0, 2, 1, 3}).flatten(2, 3), layout);
    const Tensor parts = dqkv.view({2, 32, 3, 2, 16}).permute({2, 0, 3, 1, 4});
    CHECK(values(parts.select(0, 0)) == values(da.dq));
    CHECK(values(parts.select(0, 1)) == values(da.dk));
    CHECK(values(parts.select(0, 2)) == values(da.dv));

    // A last axis with gaps, and rows at odd addresses, are copied first.
    const Tensor wide = coarse({2, 2, 32, 32}, 20, dtype).slice(3, 0, 32, 2);
    CHECK(values(sparse_attention(wide, k, v, layout).out) ==
          values(sparse_attention(contiguous(wide), k, v, layout).out));
    const Tensor odd = coarse({2, 2, 32, 17}, 21, dtype).slice(3, 1, 17);
    CHECK(values(sparse_attention(q, odd, odd, layout).out) ==
          values(sparse_attention(q, contiguous(odd), contiguous(odd), layout).out));
  }
}

TEST_CASE("sparse_attention: queries without keys") {
  const auto layout = random_layout(1, 3, 3, 16, .9, 22);  // row 2 is empty
  const Pattern pattern{layout, false, {48, 0}};
  for (const DType dtype : {f64, f32, bf16}) {
    const Shape shape{2, 1, 48, 16};
    const Tensor q = coarse(shape, 1, dtype), k = coarse(shape, 2, dtype);
    const Tensor v = coarse(shape, 3, dtype), dout = coarse(shape, 4, dtype);
    const auto r = sparse_attention(q, k, v, layout, pattern.options());
    const auto g = sparse_attention_backward(q, k, v, r, dout, layout, pattern.options());
    const Reference out = Reference::of(r.out), lse = Reference::of(r.lse);
    const Reference dq = Reference::of(g.dq), dk = Reference::of(g.dk), dv = Reference::of(g.dv);
    CHECK(lse.at({0, 0, 31}) > -10);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = b == 0 ? 32 : 0; i < 48; ++i) {
        CHECK(lse.at({b, 0, i}) == -std::numeric_limits<double>::infinity());
        for (int64_t d = 0; d < 16; ++d) {
          CHECK(out.at({b, 0, i, d}) == 0);
          CHECK(dq.at({b, 0, i, d}) == 0);
          CHECK(dk.at({b, 0, i, d}) == 0);
          CHECK(dv.at({b, 0, i, d}) == 0);
        }
      }
  }
}

TEST_CASE("sparse_attention: a layout of the wanted blocks alone counts") {
  // Whatever lies in blocks outside of the layout must not be read into the result.
  const auto layout = Layout::from_blocks(1, 2, 2, 16, {{0, 0, 0}, {0, 1, 1}});
  Reference keys = random_reference({1, 1, 32, 8}, 1);
  const Tensor q = coarse({1, 1, 32, 8}, 2, f32);
  const Tensor before = keys.tensor(f32, test_device());
  for (int64_t j = 16; j < 32; ++j)
    for (int64_t d = 0; d < 8; ++d) keys.at({0, 0, j, d}) += 100;
  const Tensor after = keys.tensor(f32, test_device());
  const Tensor a = sparse_attention(q, before, before, layout).out;
  const Tensor b = sparse_attention(q, after, after, layout).out;
  CHECK(values(a.slice(2, 0, 16)) == values(b.slice(2, 0, 16)));
  CHECK(values(a.slice(2, 16, 32)) != values(b.slice(2, 16, 32)));
}

TEST_CASE("sparse_attention: the number of threads changes no bit" * doctest::skip(!on_cpu)) {
  const auto layout = random_layout(3, 6, 6, 16, .6, 23);
  const Tensor q = coarse({1, 3, 96, 24}, 1, f32), k = coarse({1, 3, 96, 24}, 2, f32);
  const Tensor v = coarse({1, 3, 96, 24}, 3, f32), dout = coarse({1, 3, 96, 24}, 4, f32);
  const int before = threads();
  std::vector<std::vector<double>> seen;
  for (const int threads : {1, 2, 3, 7}) {
    set_threads(threads);
    const auto r = sparse_attention(q, k, v, layout, {.causal = true});
    const auto g = sparse_attention_backward(q, k, v, r, dout, layout, {.causal = true});
    std::vector<double> all = values(r.out);
    for (const Tensor& t : {r.lse, g.dq, g.dk, g.dv})
      for (double x : values(t)) all.push_back(std::isinf(x) ? 0 : x);
    seen.push_back(all);
  }
  set_threads(before);
  for (const auto& other : seen) CHECK(other == seen.front());
}

TEST_CASE("sparse_attention: nothing to do") {
  const auto none = Layout::from_blocks(2, 0, 0, 8, {});
  const Tensor empty = Tensor::empty({1, 2, 0, 8}, f32, test_device());
  const auto r = sparse_attention(empty, empty, empty, none);
  CHECK(r.out.shape() == Shape({1, 2, 0, 8}));
  const auto g = sparse_attention_backward(empty, empty, empty, r, empty, none);
  CHECK(g.dk.shape() == Shape({1, 2, 0, 8}));
  const Tensor no_batch = Tensor::empty({0, 2, 8, 8}, f32, test_device());
  CHECK(sparse_attention(no_batch, no_batch, no_batch, dense_layout(1, 1, 8)).lse.shape() ==
        Shape({0, 2, 8}));
  // No keys, but queries: zeros. No queries, but keys: their gradients are zeros.
  const auto no_keys = Layout::from_blocks(2, 1, 0, 8, {});
  const Tensor q = coarse({1, 2, 8, 8}, 1, f32);
  CHECK(values(sparse_attention(q, empty, empty, no_keys).out) == std::vector<double>(128));
  const auto no_queries = Layout::from_blocks(2, 0, 1, 8, {});
  const auto f = sparse_attention(empty, q, q, no_queries);
  const auto d = sparse_attention_backward(empty, q, q, f, empty, no_queries);
  CHECK(values(d.dk) == std::vector<double>(128));
  CHECK(values(d.dv) == std::vector<double>(128));
}

TEST_CASE("sparse_attention stores no scores") {
  const auto layout = dense_layout(64, 64, 32);
  const Tensor x = coarse({1, 1, 2048, 8}, 1, f32);
  const auto r = sparse_attention(x, x, x, layout);
  const int64_t before = memory_statistics(test_device()).in_use;
  reset_peak_memory(test_device());
  const auto g = sparse_attention_backward(x, x, x, r, x, layout);
  const int64_t used = memory_statistics(test_device()).peak - before;
  CHECK(used <= 16 * static_cast<int64_t>(x.bytes()));  // the scores would be 256 times as much
}
