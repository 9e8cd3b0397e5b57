// Attention with rules that know single elements, dropout and masks, over blocks of all sizes:
// lengths that end within blocks, heads that share keys, rows that see nothing.
#include <bs/kernels/fill.h>
#include <bs/kernels/layout_from_rows.h>
#include <bs/lib/integers.h>
#include <bs/lib/packed_mask.h>
#include <bs/tests/kernels/sparse_attention_cases.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>

using namespace bs;
using namespace bs::test;

namespace {

/// Of each block size at least one, and few: each is some kernels of its own.
struct Kind {
  int block;
  int64_t head_dim;
};
constexpr Kind kinds[] = {{16, 128}, {32, 64}, {64, 128}, {128, 64}, {128, 128}};

std::vector<DType> dtypes_of(const Sizes& s) { return {s.head_dim == 64 ? f16 : bf16}; }

/// Two blocks and a half of queries, three and a bit of keys, at most 300 of each.
Sizes sizes_of(int block, int64_t head_dim) {
  Sizes s{1, 4, 2, 2 * block + block / 2 + 3, 3 * block + 5, head_dim, head_dim};
  s.queries = std::min<int64_t>(s.queries, 203);
  s.keys = std::min<int64_t>(s.keys, 269);
  return s;
}

LayoutPtr blocks_of(const Sizes& s, int block, double density, unsigned seed) {
  const auto blocks = [block](int64_t n) { return static_cast<int>(ceil_div(n, block)); };
  return some_blocks(static_cast<int>(s.heads), blocks(s.queries), blocks(s.keys), block, density,
                     seed);
}

AttentionRules dropped(const LayoutPtr& layout, double p, uint64_t seed) {
  AttentionRules r{layout};
  r.plain.dropout = p;
  r.plain.random = {seed, 5};
  return r;
}

/// Like check(), of a layout and options that say the same as the rules.
void check_as(const std::string& name, const Sizes& s, const AttentionRules& r,
              const LayoutPtr& layout, const SparseAttentionOptions& options) {
  check_op(
      {.name = name,
       .inputs = shapes(s),
       .op =
           [&](const Variables& v) { return sparse_attention(v[0], v[1], v[2], layout, options); },
       .reference = [&](const References& in) { return attend(r, in); },
       .steps = 32,
       .dtypes = dtypes_of(s)});
}

/// The same with the arrays of its layout on the device under test, and not on the host.
LayoutPtr made_on_device(const Layout& l) {
  const LayoutView v = l.view(Device::cpu());
  const auto tensor = [](const int32_t* values, int64_t n) {
    return Tensor::from(std::span<const int32_t>(values, static_cast<size_t>(n)), {n})
        .to(test_device());
  };
  return layout_from_rows(tensor(v.row_offsets, int64_t{l.heads()} * l.rows() + 1),
                          tensor(v.col_of, l.nnz()), {l.heads(), l.rows(), l.cols(), l.block()});
}

}  // namespace

TEST_CASE("sparse_attention: dropout over blocks of every size") {
  for (const auto [block, head_dim] : kinds) {
    const Sizes s = sizes_of(block, head_dim);
    AttentionRules r = dropped(blocks_of(s, block, .7, 31), head_dim == 64 ? .1 : .5, 7);
    check(format("dropout, block {}, head_dim {}", block, head_dim), s, r, {}, dtypes_of(s));
    r.plain.causal = true;
    r.plain.offset = 11;
    r.sinks = 3;
    check(format("dropout behind a diagonal, block {}", block), s, r, {{s.heads}}, dtypes_of(s));
  }
}

TEST_CASE("sparse_attention: dropout with a cap, slopes and a window") {
  for (const auto [block, head_dim] : kinds) {
    const Sizes s = sizes_of(block, head_dim);
    AttentionRules r = dropped(blocks_of(s, block, .7, 32), .3, 8);
    r.slopes = Reference({s.heads});
    r.slopes.values = {.25, .125, .0625, .03125};
    r.plain.window_before = block + block / 2;
    check(format("slopes, block {}", block), s, r, {}, dtypes_of(s));
    r.plain.softcap = 2;
    check(format("slopes and a cap, block {}", block), s, r, {}, dtypes_of(s));
  }
}

TEST_CASE("sparse_attention: masks of elements over blocks of every size") {
  for (const auto [block, head_dim] : kinds) {
    Sizes s = sizes_of(block, head_dim);
    s.batch = 2;
    AttentionRules r{blocks_of(s, block, .7, 33)};
    // Shared by all, by the batch, by the heads, and by none.
    const int64_t kind = std::bit_width(static_cast<unsigned>(block)) - 5;
    r.mask = random_mask({kind % 2 == 0 ? 1 : 2, kind < 2 ? 1 : 4, s.queries, s.keys}, 34);
    for (int64_t j = 0; j < s.keys; ++j) r.mask.at({0, 0, 3, j}) = 0;
    check(format("mask, block {}, head_dim {}", block, head_dim), s, r, {}, dtypes_of(s));
    r.keep = random_mask({s.batch, s.keys}, 35);
    r.plain.softcap = 3;
    r.plain.causal = true;
    r.plain.offset = 9;
    check(format("mask, cap and padding, block {}", block), s, r, {}, dtypes_of(s));
  }
}

TEST_CASE("sparse_attention: packed masks over blocks of every size") {
  for (const auto [block, head_dim] : kinds) {
    const Sizes s = sizes_of(block, head_dim);
    AttentionRules r = dropped(blocks_of(s, block, .8, 36), .2, 9);
    r.mask = random_mask({1, head_dim == 64 ? 1 : s.heads, s.queries, s.keys}, 37);
    for (int64_t i = 0; i < block; ++i)
      for (int64_t j = 0; j < 2 * block; ++j)
        r.mask.at({0, 0, i, j}) = j < block ? 1 : 0;  // a block of all, and one of nothing
    const PackedMask packed = pack_mask(r.mask.tensor(boolean, test_device()), block);
    SparseAttentionOptions o = r.options();
    o.mask = {};
    o.packed_mask = packed;
    check_as(format("packed mask and dropout, block {}", block), s, r, r.layout, o);
  }
}

TEST_CASE("sparse_attention: dropout and masks over layouts that a device made") {
  for (const int block : {16, 64, 128}) {
    const Sizes s = sizes_of(block, 64);
    AttentionRules r = dropped(blocks_of(s, block, .7, 38), .4, 10);
    r.mask = random_mask({1, s.heads, s.queries, s.keys}, 39);
    check_as(format("made on the device, block {}", block), s, r, made_on_device(*r.layout),
             r.options());
  }
}

// Graphs, which replay with such a word, are of GPUs.
TEST_CASE("sparse_attention: a word on the device moves dropout's sequence" *
          doctest::skip(test_device().is_cpu())) {
  const Sizes s = sizes_of(64, 64);
  const LayoutPtr layout = blocks_of(s, 64, .8, 40);
  std::vector<Tensor> t;
  for (const Shape& shape : shapes(s))
    t.push_back(random_reference(shape, 3).tensor(bf16, test_device()));
  const Tensor four = full({1}, 4, i64, test_device());
  const auto results = [&](uint64_t offset, const Tensor& shift) {
    SparseAttentionOptions o;
    o.dropout = .5;
    o.random = {7, offset, shift.defined() ? static_cast<const uint64_t*>(shift.data()) : nullptr};
    const SparseAttentionResult r = sparse_attention(t[0], t[1], t[2], layout, o);
    const auto g = sparse_attention_backward(t[0], t[1], t[2], r, r.out, layout, o);
    return std::vector<Tensor>{r.out, g.dq, g.dk, g.dv};
  };
  const auto nine = results(9, {}), moved = results(5, four);
  for (size_t i = 0; i < nine.size(); ++i) CHECK(same_bits(nine[i], moved[i]));
  CHECK_FALSE(same_bits(nine[0], results(5, {})[0]));
}

TEST_CASE("sparse_attention: values of another width, and wide ones, over blocks of every size") {
  const auto of = [](int block, int64_t head_dim, int64_t value_dim) {
    Sizes s = sizes_of(block, head_dim);
    s.value_dim = value_dim;
    AttentionRules r{blocks_of(s, block, .7, 41)};
    r.plain.causal = block % 64 == 0;
    check(format("block {}, head_dim {}, value_dim {}", block, head_dim, value_dim), s, r, {},
          dtypes_of(s));
  };
  of(16, 64, 128);
  of(64, 64, 104);
  of(128, 64, 128);
  of(32, 128, 64);
  of(128, 128, 40);
  of(16, 192, 128);
  of(128, 192, 192);
  of(64, 256, 64);
  of(128, 256, 256);
  of(16, 256, 256);
  of(32, 40, 200);
  of(64, 192, 192);
}

TEST_CASE("sparse_attention: wide values with dropout and a mask") {
  for (const int block : {16, 128}) {
    Sizes s = sizes_of(block, 192);
    s.value_dim = 256;
    AttentionRules r = dropped(blocks_of(s, block, .7, 42), .3, 11);
    r.mask = random_mask({1, 1, s.queries, s.keys}, 43);
    r.plain.window_after = 20;
    check(format("wide values, block {}", block), s, r, {}, dtypes_of(s));
  }
}

TEST_CASE("sparse_attention: many rules at once over blocks of every size") {
  // In the backward two warpgroups share the keys of these: of heads up to 128 for their rules.
  struct Case {
    int block;
    int64_t head_dim;
    bool all;  ///< or dropout and a mask only
  };
  for (const auto [block, head_dim, all] : {Case{16, 128, false},
                                            {64, 256, false},
                                            {128, 64, false},
                                            {16, 256, true},
                                            {32, 128, true},
                                            {64, 192, true},
                                            {128, 192, true}}) {
    Sizes s = sizes_of(block, head_dim);
    s.keys += s.keys % 2;  // of an even number, pairs of a bias are words
    if (block == 128 && all) s.value_dim = 128;
    AttentionRules r = dropped(blocks_of(s, block, .7, 46), .3, 13);
    r.mask = random_mask({1, s.heads, s.queries, s.keys}, 47);
    r.plain.causal = block == 128;
    r.plain.offset = 66;
    std::vector<Shape> more;
    if (all) {
      r.plain.softcap = 2;
      r.slopes = Reference({s.heads});
      r.slopes.values = {.25, .125, .0625, .03125};
      r.keep = random_mask({1, s.keys}, 48);
    }
    if (all && head_dim <= 192) {  // over it the forward has no registers for them
      r.bias = 3;
      r.table = 4;
      more = {{1, 1, s.queries, s.keys}, {s.heads, 2 * block + 1}};
    }
    check(format("block {}, head_dim {}", block, head_dim), s, r, more, {all ? f16 : bf16});
  }
}

TEST_CASE("sparse_attention: a bias and a table over blocks of every size") {
  for (const auto [block, head_dim] : kinds) {
    Sizes s = sizes_of(block, head_dim);
    s.batch = 2;
    s.keys += s.keys % 2;  // of an even number, pairs are words
    AttentionRules r{blocks_of(s, block, .7, 44)};
    r.table = 3;
    check(format("table, block {}", block), s, r, {{block == 32 ? 1 : s.heads, 2 * block + 1}},
          dtypes_of(s));
    r.plain.causal = true;
    r.plain.offset = 13;
    r.bias = 4;
    const Shape of_bias{block < 64 ? 1 : 2, block % 128 == 0 ? 1 : s.heads, s.queries, s.keys};
    check(format("table and bias, block {}", block), s, r, {{s.heads, 9}, of_bias}, dtypes_of(s));
    r = {r.layout};
    r.bias = 3;
    r.plain.softcap = 2;
    r.plain.dropout = .2;
    check(format("bias, cap and dropout, block {}", block), s, r, {of_bias}, dtypes_of(s));
  }
}

TEST_CASE("sparse_attention: a table of ragged sequences over blocks of every size") {
  for (const auto [block, head_dim] : kinds) {
    const Sizes s{1, 4, 2, 330, 330, head_dim, head_dim};
    AttentionRules r{some_blocks(1, 256 / block, 256 / block, block, .8, 49)};
    r.plain.query_starts = r.plain.key_starts = {0, 130, 130, 137, 330};
    r.plain.offset = block == 64 ? 5 : 0;
    r.table = 3;
    check(format("ragged table, block {}", block), s, r, {{block == 16 ? 1 : s.heads, 2 * 40 + 1}},
          dtypes_of(s));
  }
}

TEST_CASE("sparse_attention: a table of ragged sequences over layouts that are not square") {
  const Sizes s{1, 2, 1, 235, 235, 64, 64};
  for (const auto [block, rows, cols] :
       {std::array{32, 4, 6}, {32, 7, 4}, {64, 2, 5}, {128, 3, 1}}) {
    AttentionRules r{some_blocks(1, rows, cols, block, .8, 50)};
    r.plain.query_starts = r.plain.key_starts = {0, 100, 100, 107, 235};
    r.table = 3;
    check(format("ragged table, {} x {} blocks of {}", rows, cols, block), s, r,
          {{s.heads, 2 * 20 + 1}}, {f16});
  }
}

TEST_CASE("sparse_attention: dropout of ragged sequences over blocks of every size") {
  for (const auto [block, head_dim] : kinds) {
    const Sizes s{1, 4, 2, 330, 330, head_dim, head_dim};
    AttentionRules r = dropped(some_blocks(1, 256 / block, 256 / block, block, .8, 45), .3, 12);
    r.plain.query_starts = r.plain.key_starts = {0, 130, 130, 137, 330};
    check(format("ragged, block {}", block), s, r, {}, dtypes_of(s));
    r.plain.causal = true;
    r.sinks = 3;
    check(format("ragged and causal, block {}", block), s, r, {{s.heads}}, dtypes_of(s));
  }
}
