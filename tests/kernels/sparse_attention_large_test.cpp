// Attention over blocks and rows large enough for the kernels that a GPU has for them.
#include <bs/kernels/copy.h>
#include <bs/kernels/layout_from_rows.h>
#include <bs/lib/integers.h>
#include <bs/tests/kernels/sparse_attention_cases.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

TEST_CASE("sparse_attention: bounds of rows within large blocks") {
  // On Hopper these run on wgmma, several blocks in a tile and several tiles a row.
  struct Bounds {
    int64_t queries, keys, offset;
    std::optional<int64_t> before, after;
    bool causal;
  };
  const std::vector<Bounds> all = {{300, 300, 0, {}, {}, true},   {257, 390, 133, {}, {}, true},
                                   {300, 300, 0, 70, {}, true},   {290, 201, 0, {}, {}, false},
                                   {270, 333, 20, 33, 90, false}, {260, 260, -65, {}, {}, true}};
  unsigned seed = 0;
  for (const int block : {16, 32, 64, 128})
    for (const Bounds& b : all) {
      const auto blocks = [&](int64_t n) { return static_cast<int>(ceil_div(n, block)); };
      const double density = seed % 3 == 0 ? 2 : .6;
      AttentionRules r{
          some_blocks(seed % 2 ? 2 : 1, blocks(b.queries), blocks(b.keys), block, density, seed)};
      r.plain.causal = b.causal;
      r.plain.offset = b.offset;
      r.plain.window_before = b.before;
      r.plain.window_after = b.after;
      const int64_t dim = seed % 4 == 3 ? 128 : 40, kv_heads = seed % 3 == 1 ? 1 : 2;
      check(format("bounds {}", seed), {1, 2, kv_heads, b.queries, b.keys, dim, dim}, r, {},
            {bf16});
      ++seed;
    }
}

TEST_CASE("sparse_attention: columns of small blocks that are alike, but for some rows") {
  // On Hopper two warpgroups meet the rows of 128 keys together. Each passes over some.
  int number = 0;
  for (const int block : {16, 32})
    for (const bool causal : {false, true})
      for (const int64_t tail : {0, 5}) {
        if (!is_sampled(number++)) continue;
        const int rows = block == 16 ? 37 : 20;
        std::vector<BlockIndex> blocks;
        for (int i = 0; i < rows; ++i)
          for (int j = 0; j < (causal ? i + 1 : rows); ++j)
            if (i % (causal ? 25 : 7) != 3 || j / (64 / block) % 2 != 0)
              blocks.push_back({0, i, j});
        AttentionRules r{Layout::from_blocks(1, rows, rows, block, blocks)};
        r.plain.causal = causal;
        const int64_t length = int64_t{rows} * block - tail;
        check(format("block {}, causal {}, {} fewer", block, causal, tail),
              {1, 2, tail ? 1 : 2, length, length, 128, 128}, r, {}, {bf16});
      }
}

TEST_CASE("sparse_attention: terms of scores within large blocks") {
  // On Hopper these run on wgmma, each term by itself and all at once, with bounds of two kinds for
  // each kernel: every set of them is compiled, and so is that of the doubles to compare with.
  struct Bounds {
    int64_t queries, keys, offset;
    std::optional<int64_t> before;
    bool causal, padded;
  };
  const std::vector<Bounds> all = {{128, 256, 0, {}, false, false},
                                   {256, 256, 0, {}, true, false},
                                   {150, 201, 50, 60, true, false},
                                   {201, 150, -30, {}, true, true}};
  unsigned seed = 0;
  for (const int block : {16, 32, 64, 128})
    for (const int64_t dim : {64, 128})
      for (const unsigned bounds : {seed / 2, seed / 2 + (dim == 64 ? 2 : 3)}) {
        if (!is_sampled(static_cast<int>(seed))) {
          ++seed;
          continue;
        }
        const Bounds& b = all[bounds % 4];
        const auto blocks = [&](int64_t n) { return static_cast<int>(ceil_div(n, block)); };
        AttentionRules r{
            some_blocks(seed % 3 ? 2 : 1, blocks(b.queries), blocks(b.keys), block, .7, seed)};
        r.plain.causal = b.causal;
        r.plain.offset = b.offset;
        r.plain.window_before = b.before;
        if (b.padded) r.keep = random_mask({1, b.keys}, seed);
        const Sizes sizes{1, 2, seed / 2 % 3 == 0 ? 1 : 2, b.queries, b.keys, dim, dim};
        const DType dtype = seed % 5 < 2 ? bf16 : f16;
        AttentionRules capped = r, sloped = r, sunk = r;
        capped.plain.scale = 2;
        capped.plain.softcap = seed % 5 == 0 ? 20 : 3;
        sloped.slopes = Reference({2});
        sloped.slopes.values = {.0625, .5};
        sunk.sinks = 3;
        if (seed % 3 == 0) check(format("softcap {}", seed), sizes, capped, {}, {dtype});
        if (seed % 3 == 1) check(format("slopes {}", seed), sizes, sloped, {}, {dtype});
        if (seed % 3 == 2) check(format("sinks {}", seed), sizes, sunk, {{2}}, {dtype});
        capped.slopes = sloped.slopes;
        capped.sinks = sunk.sinks;
        check(format("terms {}", seed), sizes, capped, {{2}}, {dtype});
        ++seed;
      }
}

TEST_CASE("sparse_attention: layouts made on the device give what those of the host give") {
  // On Hopper their lists are made there too, and the host never has them.
  constexpr int64_t batch = 2, heads = 2, length = 384;
  unsigned seed = 0;
  for (const int block : {16, 32, 64, 128})
    for (const int layout_heads : {1, 2, 4})
      for (const bool causal : {false, true}) {
        CAPTURE(block);
        CAPTURE(layout_heads);
        CAPTURE(causal);
        const int64_t dim = seed % 2 ? 64 : 128, kv_heads = seed % 3 ? 2 : 1;
        const int side = static_cast<int>(length) / block;
        const LayoutPtr listed = some_blocks(layout_heads, side, side, block, .5, seed);
        const Tensor mask = listed->mask().to(test_device());
        const auto input = [&](int64_t of, uint64_t number) {
          return random_reference({batch, of, length, dim}, number).tensor(bf16, test_device());
        };
        const Tensor q = input(heads, 1), k = input(kv_heads, 2), v = input(kv_heads, 3);
        const Tensor dout = input(heads, 4);
        const SparseAttentionOptions options{.causal = causal};
        const auto compute = [&](const LayoutPtr& layout) {
          const SparseAttentionResult forward = sparse_attention(q, k, v, layout, options);
          const SparseAttentionGradients g =
              sparse_attention_backward(q, k, v, forward, dout, layout, options);
          return std::vector<Tensor>{forward.out, forward.lse, g.dq, g.dk, g.dv};
        };
        const LayoutPtr made = layout_from_mask(mask, block, listed->nnz());
        const std::vector<Tensor> here = compute(listed), there = compute(made);
        CHECK_FALSE(made->on_host());
        for (size_t i = 0; i < here.size(); ++i) {
          Reference expected = Reference::of(here[i]), actual = Reference::of(there[i]);
          double largest = 1;
          for (size_t at = 0; at < expected.values.size(); ++at) {
            double& value = expected.values[at];
            if (value == actual.values[at]) value = actual.values[at] = 0;  // -infinity, too
            largest = std::max(largest, std::abs(value));
          }
          check_close(format("made on the device {} {}", seed, i), actual, expected,
                      2 * epsilon(bf16) * largest);
        }
        ++seed;
      }
}

TEST_CASE("sparse_attention: gradients of outputs whose rows lie at odd addresses") {
  const Shape shape{1, 2, 128, 64};
  const LayoutPtr layout = some_blocks(1, 2, 2, 64, 2, 1);
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(dtype);
    const auto input = [&](uint64_t number) {
      return random_reference(shape, number).tensor(dtype, test_device());
    };
    const Tensor q = input(1), k = input(2), v = input(3), dout = input(4);
    const SparseAttentionResult forward = sparse_attention(q, k, v, layout);
    const Tensor odd = Tensor::empty({1, 2, 128, 65}, dtype, test_device()).slice(3, 1, 65);
    copy(forward.out, odd);
    const auto expected = sparse_attention_backward(q, k, v, forward, dout, layout);
    const auto actual = sparse_attention_backward(q, k, v, {odd, forward.lse}, dout, layout);
    CHECK(Reference::of(actual.dq).values == Reference::of(expected.dq).values);
    CHECK(Reference::of(actual.dk).values == Reference::of(expected.dk).values);
    CHECK(Reference::of(actual.dv).values == Reference::of(expected.dv).values);
  }
}

TEST_CASE("sparse_attention: ragged sequences over large blocks") {
  // On Hopper these run on wgmma as one long sequence, each from a multiple of 128 on.
  const std::vector<int64_t> starts = {0, 5, 5, 133, 133 + 256, 390, 601};
  unsigned seed = 0;
  for (const int block : {16, 32, 64, 128})
    for (const bool causal : {true, false})
      for (const bool bounded : {false, true}) {
        const int side = (256 + block - 1) / block, heads = seed % 3 == 0 ? 1 : 2;
        AttentionRules r{some_blocks(heads, side, side, block, seed % 4 == 3 ? 2 : .6, seed)};
        r.plain.query_starts = r.plain.key_starts = starts;
        r.plain.causal = causal;
        if (bounded) {
          r.plain.window_before = 90;
          r.plain.offset = causal ? -3 : 20;
        }
        const int64_t dim = seed % 4 == 1 ? 128 : 48, kv_heads = seed % 3 == 1 ? 1 : 2;
        if (is_sampled(static_cast<int>(seed)))
          check(format("ragged {}", seed), {1, 2, kv_heads, 601, 601, dim, dim}, r, {}, {bf16});
        ++seed;
      }
}

TEST_CASE("sparse_attention: what is not finite stays in its ragged sequence") {
  const std::vector<int64_t> starts = {0, 100, 263, 300};
  const Shape shape{1, 2, 300, 64};
  const LayoutPtr layout = some_blocks(1, 3, 3, 64, .8, 3);
  SparseAttentionOptions options{.causal = true};
  options.query_starts = options.key_starts = starts;
  const auto compute = [&](double value) {
    References in;
    for (uint64_t i = 0; i < 4; ++i) {
      in.push_back(random_reference(shape, i + 1));
      for (int64_t row = 100; row < 263; ++row) in.back().at({0, 0, row, 3}) = value;
    }
    std::vector<Tensor> t;
    for (const Reference& r : in) t.push_back(r.tensor(bf16, test_device()));
    const SparseAttentionResult forward = sparse_attention(t[0], t[1], t[2], layout, options);
    const SparseAttentionGradients g =
        sparse_attention_backward(t[0], t[1], t[2], forward, t[3], layout, options);
    return std::vector<Tensor>{forward.out, g.dq, g.dk, g.dv};
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Tensor> finite = compute(0), not_finite = compute(nan);
  for (size_t i = 0; i < finite.size(); ++i) {
    const Reference expected = Reference::of(finite[i]), actual = Reference::of(not_finite[i]);
    double worst = 0;
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t row = 0; row < 300; ++row)
        for (int64_t d = 0; d < 64; ++d) {
          if (row >= 100 && row < 263) continue;
          const double off = std::abs(actual.at({0, h, row, d}) - expected.at({0, h, row, d}));
          worst = std::isfinite(off) ? std::max(worst, off) : off;
        }
    CHECK(worst <= 4 * epsilon(bf16) * std::max(1.0, largest(expected)));
  }
}
