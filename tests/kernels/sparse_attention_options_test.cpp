#include <bs/kernels/copy.h>
#include <bs/lib/integers.h>
#include <bs/tests/kernels/sparse_attention_cases.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

SparseAttentionOptions causal(int64_t offset = 0) {
  SparseAttentionOptions o;
  o.causal = true;
  o.offset = offset;
  return o;
}

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

}  // namespace

TEST_CASE("sparse_attention: lengths that end inside a block") {
  for (const int64_t queries : {1, 7, 19, 33})
    for (const int64_t keys : {1, 9, 40}) {
      const auto blocks = [](int64_t n, int block) { return static_cast<int>(ceil_div(n, block)); };
      const auto& dtypes = queries == 1 || keys < 10 ? exact : all_dtypes;
      check("tails of 8", {1, 2, 1, queries, keys},
            {some_blocks(2, blocks(queries, 8), blocks(keys, 8), 8, .7, 3)}, {}, dtypes);
      check("tails of 32, causal", {1, 2, 2, queries, keys},
            {all_blocks(blocks(queries, 32), blocks(keys, 32), 32), causal()}, {}, dtypes);
    }
  check("tails of 64", {1, 1, 1, 70, 100}, {all_blocks(2, 2, 64), causal(30)});
  check("tails of 128", {1, 1, 1, 130, 129}, {all_blocks(2, 2, 128), causal()});
}

TEST_CASE("sparse_attention: values as wide as they like") {
  check("wider values", {1, 2, 1, 24, 24, 8, 24}, {some_blocks(2, 3, 3, 8, .7, 4)});
  check("narrower values", {2, 2, 2, 24, 16, 40, 8}, {some_blocks(2, 3, 2, 8, .7, 5)});
}

TEST_CASE("sparse_attention: a head_dim of up to 256") {
  for (const int64_t dim : {136, 192, 256})
    check("head_dim", {1, 1, 1, 20, 20, dim, dim}, {all_blocks(2, 2, 16), causal()});
  check("value_dim 256", {1, 1, 1, 18, 70, 64, 256}, {all_blocks(1, 2, 64)});
}

TEST_CASE("sparse_attention: a pattern for each batch entry") {
  check("heads of each entry", {3, 2, 2}, {some_blocks(6, 3, 3, 8, .5, 6)});
}

TEST_CASE("sparse_attention: where the diagonal lies") {
  check("bottom right", {1, 2, 2, 16, 40}, {all_blocks(2, 5, 8), causal(24)});
  check("below the top left", {1, 2, 2, 40, 16}, {all_blocks(5, 2, 8), causal(-9)});
  check("odd offset", {1, 2, 2, 21, 37}, {all_blocks(2, 3, 16), causal(16)});
  check("all hidden", {1, 1, 1, 8, 8}, {all_blocks(1, 1, 8), causal(-20)});
}

TEST_CASE("sparse_attention: windows of elements") {
  AttentionRules r{all_blocks(5, 5, 8)};
  for (const int64_t before : {0, 3, 11})
    for (const int64_t after : {0, 5}) {
      r.plain.window_before = before;
      r.plain.window_after = after;
      check("window", {1, 2, 1, 37, 37}, r, {}, before + after == 0 ? exact : all_dtypes);
    }
  r.plain.window_after.reset();
  check("window before", {1, 2, 1, 37, 37}, r);
  r.plain.causal = true;
  r.plain.offset = 5;
  check("window, causal, offset", {1, 2, 1, 34, 40}, r);
}

TEST_CASE("sparse_attention: some rows of a layout") {
  for (const int64_t first : {0, 5, 13, 31}) {
    AttentionRules r{some_blocks(2, 4, 4, 8, .8, 7), causal()};
    r.plain.first_query = first;
    check("one query", {2, 2, 1, 1, first + 1}, r, {}, first == 0 ? exact : all_dtypes);
    r.plain.dropout = .3;
    if (first < 20) check("several queries", {1, 2, 2, 9, first + 9}, r);
  }
}

TEST_CASE("sparse_attention: softcap") {
  AttentionRules r{some_blocks(2, 3, 3, 8, .8, 8), causal()};
  r.plain.softcap = .7;
  r.plain.scale = 1;
  check("softcap", {}, r);
}

TEST_CASE("sparse_attention: masks of elements") {
  for (const int64_t batch : {1, 2})
    for (const int64_t heads : {1, 2}) {
      AttentionRules r{some_blocks(2, 3, 3, 8, .8, 9)};
      r.mask = random_mask({batch, heads, 22, 21}, 10);
      for (int64_t j = 0; j < 21; ++j) r.mask.at({0, 0, 3, j}) = 0;
      check("mask", {2, 2, 2, 22, 21}, r);
    }
}

TEST_CASE("sparse_attention: a bias of all scores") {
  for (const int64_t batch : {1, 2})
    for (const int64_t heads : {1, 4}) {
      AttentionRules r{some_blocks(1, 3, 3, 8, .8, 11), causal()};
      r.bias = 3;
      check("bias", {2, 4, 2, 22, 21}, r, {{batch, heads, 22, 21}});
    }
}

TEST_CASE("sparse_attention: a bias of minus infinity hides") {
  const AttentionRules r{.layout = all_blocks(3, 3, 8), .bias = 3};
  References in;
  for (const Shape& shape : shapes({1, 2, 2, 24, 24})) in.push_back(random_reference(shape, 4));
  in.push_back(random_reference({1, 1, 24, 24}, 5));
  for (int64_t i = 0; i < 24; ++i)
    for (int64_t j = 0; j < 24; ++j)
      if (i == 7 || j > i + 3) in[3].at({0, 0, i, j}) = -infinity;
  SparseAttentionOptions o;
  std::vector<Tensor> t;
  for (const Reference& x : in) t.push_back(x.tensor(f64, test_device()));
  o.bias = t[3];
  const auto forward = sparse_attention(t[0], t[1], t[2], r.layout, o);
  check_close("out", Reference::of(forward.out), attend(r, in), 1e-12);
  const auto g =
      sparse_attention_backward(t[0], t[1], t[2], forward, t[0], r.layout, o, {.bias = true});
  for (const Tensor& x : {g.dq, g.dk, g.dv, g.dbias})
    for (double e : values(x)) CHECK(std::isfinite(e));
  const Reference dbias = Reference::of(g.dbias);
  for (int64_t j = 0; j < 24; ++j) CHECK(dbias.at({0, 0, 7, j}) == 0);
}

TEST_CASE("sparse_attention: relative positions") {
  for (const int64_t reach : {0, 1, 4, 40})
    for (const int64_t heads : {1, 2}) {
      AttentionRules r{some_blocks(2, 3, 4, 8, .8, 12), causal(5)};
      r.table = 3;
      check("table", {2, 2, 1, 22, 29}, r, {{heads, 2 * reach + 1}},
            reach == 0 ? exact : all_dtypes);
    }
  AttentionRules far{all_blocks(3, 3, 8)};
  far.plain.offset = -30;
  far.table = 3;
  check("all beyond the table", {1, 1, 1, 24, 24}, far, {{1, 5}}, exact);
}

TEST_CASE("sparse_attention: slopes of distance") {
  AttentionRules r{some_blocks(2, 3, 4, 8, .8, 13)};
  r.plain.offset = 6;
  r.slopes = Reference({2});
  r.slopes.values = {.25, .0625};
  check("alibi", {2, 2, 1, 22, 29}, r);
}

TEST_CASE("sparse_attention: sinks") {
  AttentionRules r{some_blocks(2, 3, 3, 8, .6, 14), causal()};
  r.sinks = 3;
  check("sinks", {2, 2, 1, 24, 24}, r, {{2}});
  check("sinks alone", {1, 2, 2, 8, 8}, {.layout = some_blocks(2, 1, 1, 8, 0, 1), .sinks = 3},
        {{2}});
}

TEST_CASE("sparse_attention: dropout of weights") {
  for (const double p : {.1, .5}) {
    AttentionRules r{some_blocks(2, 3, 3, 16, .8, 15), causal()};
    r.plain.dropout = p;
    r.plain.random = {7, 3};
    r.table = 3;
    check("dropout", {2, 2, 1, 41, 46}, r, {{2, 7}});
  }
}

TEST_CASE("sparse_attention: ragged batches") {
  AttentionRules r{some_blocks(2, 4, 4, 8, .8, 16), causal()};
  r.plain.query_starts = {0, 5, 5, 30, 46, 47};
  r.plain.key_starts = {0, 9, 13, 13, 40, 41};
  check("ragged", {1, 2, 1, 47, 41}, r);
  r.plain.dropout = .25;
  r.table = 3;
  r.sinks = 4;
  check("ragged, with more", {1, 2, 2, 47, 41}, r, {{2, 9}, {2}});
  r = {some_blocks(10, 4, 4, 8, .6, 17), r.plain};
  check("ragged, patterns of their own", {1, 2, 2, 47, 41}, r);
}

TEST_CASE("sparse_attention: all options at once") {
  AttentionRules r{some_blocks(2, 3, 3, 16, .8, 18), causal(3)};
  r.plain.window_before = 25;
  r.plain.softcap = 2;
  r.plain.dropout = .2;
  r.plain.random = {1, 2};
  r.keep = random_mask({2, 46}, 1);
  r.mask = random_mask({1, 2, 41, 46}, 2);
  r.slopes = Reference({2});
  r.slopes.values = {.125, .03125};
  r.bias = 3;
  r.table = 4;
  r.sinks = 5;
  check("everything", {2, 2, 1, 41, 46, 16, 24}, r, {{2, 1, 41, 46}, {2, 9}, {2}});
  r.layout = all_blocks(1, 1, 64);
  check("everything, whole tiles", {2, 2, 1, 41, 46, 16, 24}, r, {{2, 1, 41, 46}, {2, 9}, {2}});
}

namespace {

using O = SparseAttentionOptions;

Tensor make(const Shape& shape, DType dtype = f32) {
  return Tensor::empty(shape, dtype, test_device());
}

/// What attention of `x` to itself, over 3 x 3 blocks of 8, says of the options that `set` sets.
template <class Set>
std::string message(Set set, const Tensor& x) {
  O o;
  set(o);
  try {
    sparse_attention(x, x, x, all_blocks(3, 3, 8), o);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("sparse_attention refuses terms of scores that do not fit") {
  const Tensor x = make({2, 2, 24, 8});
  for (const auto& [bad, text] : {std::pair(-1.0, "-1"), {HUGE_VAL, "inf"}, {NAN, "nan"}}) {
    const double factor = bad;
    const std::string rest = std::string(" ") + text + " is negative or not finite";
    CHECK(message([&](O& o) { o.softcap = factor; }, x) == "sparse_attention: softcap" + rest);
    CHECK(message([&](O& o) { o.scale = factor; }, x) == "sparse_attention: scale" + rest);
  }
  for (const auto& [bad, text] : {std::pair(1e39, "1e+39"), {1e-46, "1e-46"}}) {
    const double factor = bad;
    const std::string rest =
        std::string(" ") + text + " is not between 2^-126 and 2^127, for sums of f32";
    CHECK(message([&](O& o) { o.softcap = factor; }, x) == "sparse_attention: softcap" + rest);
    CHECK(message([&](O& o) { o.scale = factor; }, x) == "sparse_attention: scale" + rest);
  }
  for (const double fine : {0x1p-126, 0x1p127})
    CHECK(message([&](O& o) { o.scale = o.softcap = fine; }, x) == "");
  const Tensor wide = make({2, 2, 24, 8}, f64);
  CHECK(message([](O& o) { o.scale = 1e39, o.softcap = 1e-46; }, wide) == "");
  CHECK(message([](O& o) { o.dropout = 1; }, x) == "sparse_attention: dropout 1 is outside [0, 1)");
  CHECK(message([](O& o) { o.window_before = -3; }, x) ==
        "sparse_attention: a window reaches -3 keys far");
  CHECK(message(
            [&](O& o) {
              o.mask = make({1, 1, 24, 24}, u8);
            },
            x) == "sparse_attention: mask is u8, not bool");
  CHECK(message(
            [&](O& o) {
              o.mask = make({24, 24}, boolean);
            },
            x) ==
        "sparse_attention: mask [24, 24] is not [batch or 1, heads or 1, queries, keys] of q "
        "[2, 2, 24, 8] and k [2, 2, 24, 8]");
  CHECK(message(
            [&](O& o) {
              o.bias = make({1, 1, 24, 24}, f64);
            },
            x) == "sparse_attention: dtypes f32 and f64 differ");
  CHECK(message([&](O& o) { o.sinks = make({3}); }, x) ==
        "sparse_attention: sinks f32 [3] is not floating [heads] of q [2, 2, 24, 8]");
  CHECK(message(
            [&](O& o) {
              o.relative_bias = make({1, 4});
            },
            x) ==
        "sparse_attention: relative_bias f32 [1, 4] is not floating [heads or 1, 2 n + 1] of q "
        "[2, 2, 24, 8]");
  const LayoutPtr layout = all_blocks(3, 3, 8);
  CHECK_THROWS_WITH_AS(sparse_attention_backward(x, x, x, sparse_attention(x, x, x, layout), x,
                                                 layout, {}, {.sinks = true}),
                       "sparse_attention_backward: the gradient of sinks, which is not given",
                       Error);
}

TEST_CASE("sparse_attention refuses places and ragged sequences that do not fit") {
  const Tensor x = make({2, 2, 24, 8});
  CHECK(message([](O& o) { o.first_query = 1; }, x) ==
        "sparse_attention: 24 queries from 1 on and 24 keys reach over a layout of 3 x 3 blocks of "
        "8");
  const auto ragged = [](O& o) { o.query_starts = o.key_starts = {0, 24}; };
  CHECK(message(ragged, x) ==
        "sparse_attention: ragged sequences lie in a batch of 1, not in q [2, 2, 24, 8]");
  const Tensor one = x.slice(0, 0, 1);
  CHECK(message(
            [](O& o) {
              o.query_starts = {0, 24};
            },
            one) == "sparse_attention: 2 query_starts and 0 key_starts");
  CHECK(message(
            [](O& o) {
              o.query_starts = {0, 25, 24}, o.key_starts = {0, 3, 24};
            },
            one) == "sparse_attention: query_starts do not ascend from 0 to 24");
}
