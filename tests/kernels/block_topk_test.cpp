// Layouts from scores, lists, masks and starts, against loops over all blocks and against
// Layout::from_mask.
#include <bs/kernels/block_topk.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/layout_from_rows.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/integers.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Scores with many ties, and with values that are not finite.
Reference scores_of(const Shape& shape, uint64_t seed) {
  Reference scores(shape);
  std::mt19937_64 generator(seed);
  for (double& s : scores.values) {
    const auto drawn = static_cast<int>(generator() % 40);
    s = drawn == 0 ? nan : drawn == 1 ? inf : drawn == 2 ? -inf : drawn == 3 ? -0.0 : drawn % 9 - 4;
  }
  return scores;
}

/// Whether column a of a row goes before column b.
bool goes_before(const double* row, int64_t a, int64_t b) {
  if (std::isnan(row[a]) || std::isnan(row[b]))
    return std::isnan(row[a]) == std::isnan(row[b]) ? a < b : std::isnan(row[b]);
  return row[a] == row[b] ? a < b : row[a] > row[b];
}

/// The blocks kept: those that fewer than k others of their row go before.
Reference kept_by(const Reference& scores, int k, const BlockTopkOptions& o) {
  const int64_t rows = scores.shape[1], cols = scores.shape[2];
  Reference mask(scores.shape);
  for (int64_t h = 0; h < scores.shape[0]; ++h)
    for (int64_t r = 0; r < rows; ++r) {
      const double* const row = &scores.values[static_cast<size_t>((h * rows + r) * cols)];
      const int64_t seen = o.causal ? std::min(r + 1, cols) : cols;
      const auto always = [&](int64_t c) {
        return c < o.first_blocks || (c <= r && r - c < o.local_blocks);
      };
      for (int64_t c = 0; c < seen; ++c) {
        int better = 0;
        for (int64_t other = 0; other < seen; ++other)
          better += always(other) == always(c)
                        ? (always(c) ? other < c : goes_before(row, other, c))
                        : always(other);
        mask.at({h, r, c}) = better < k;
      }
    }
  return mask;
}

void check_same(const Layout& made, const Reference& mask, int block) {
  const LayoutPtr expected = Layout::from_mask(mask.tensor(u8, Device::cpu()), block);
  CHECK_FALSE(made.on_host());
  REQUIRE(made.nnz() == expected->nnz());  // known before the host looks
  CHECK_FALSE(made.on_host());
  const LayoutView a = made.view(test_device()), b = expected->view(Device::cpu());
  const auto check = [&](const int32_t* actual, const int32_t* wanted, int64_t count) {
    const Tensor copy = Tensor::from_blob(const_cast<int32_t*>(actual), {count}, i32, test_device())
                            .to(Device::cpu());
    CHECK(std::equal(wanted, wanted + count, copy.data<int32_t>()));
  };
  check(a.row_offsets, b.row_offsets, int64_t{b.heads} * b.rows + 1);
  check(a.head_of, b.head_of, b.nnz);
  check(a.row_of, b.row_of, b.nnz);
  check(a.col_of, b.col_of, b.nnz);
  check(a.col_offsets, b.col_offsets, int64_t{b.heads} * b.cols + 1);
  check(a.transposed, b.transposed, b.nnz);
  check(a.transposed_row, b.transposed_row, b.nnz);
  CHECK(made == *expected);
  CHECK(made.on_host());
  CHECK(made.hash() == expected->hash());
  CHECK(made.max_row() == expected->max_row());
  CHECK(made.max_col() == expected->max_col());
  CHECK(*made.transpose() == *expected->transpose());
  CHECK(Reference::of(made.mask()).values == mask.values);
}

}  // namespace

TEST_CASE("block_topk keeps the best blocks of each row") {
  const Shape shapes[] = {{1, 1, 1},   {3, 7, 5},    {2, 5, 7},    {1, 40, 70},
                          {2, 33, 33}, {1, 33, 300}, {1, 3, 1100}, {2, 70, 256}};
  const BlockTopkOptions ways[] = {
      {.block = 16},
      {.block = 32, .causal = true},
      {.block = 64, .causal = true, .first_blocks = 1, .local_blocks = 2},
      {.block = 8, .first_blocks = 2, .local_blocks = 1}};
  int number = 0;
  for (const Shape& shape : shapes)
    for (const BlockTopkOptions& o : ways)
      for (const int k : {1, 3, 32, 100}) {
        if (!is_sampled(number++)) continue;
        CAPTURE(to_string(shape));
        CAPTURE(o.causal);
        CAPTURE(k);
        const Reference scores = scores_of(shape, static_cast<uint64_t>(k));
        const LayoutPtr made = block_topk(scores.tensor(f32, test_device()), k, o);
        check_same(*made, kept_by(scores, k, o), o.block);
      }
}

TEST_CASE("block_topk takes scores of any floating dtype, rank and strides") {
  const Reference scores = scores_of({6, 9, 9}, 5);
  const LayoutPtr expected = block_topk(scores.tensor(f32, test_device()), 3, {.causal = true});
  for (const DType dtype : {f16, bf16, f64})
    CHECK(*block_topk(scores.tensor(dtype, test_device()), 3, {.causal = true}) == *expected);
  // Scores that differ in the last bit of their dtype, of both signs.
  for (const DType dtype : {f16, bf16}) {
    const Reference drawn =
        Reference::of(random_reference({2, 40, 100}, 6).tensor(dtype, Device::cpu()));
    const LayoutPtr exact = block_topk(drawn.tensor(f64, test_device()), 30);
    CHECK(*block_topk(drawn.tensor(dtype, test_device()), 30) == *exact);
    CHECK(*exact == *Layout::from_mask(kept_by(drawn, 30, {}).tensor(u8, Device::cpu()), 32));
  }
  const Tensor of_batch = scores.tensor(f32, test_device()).view({2, 3, 9, 9});
  CHECK(*block_topk(of_batch, 3, {.causal = true}) == *expected);
  const Tensor turned = clone(of_batch.transpose(2, 3)).transpose(2, 3);
  CHECK(*block_topk(turned, 3, {.causal = true}) == *expected);
  CHECK(*block_topk(of_batch.select(0, 1).select(0, 2), 3) ==
        *block_topk(of_batch.slice(0, 1, 2).slice(1, 2, 3), 3));
}

TEST_CASE("block_topk: nothing to choose from") {
  for (const Shape& shape : {Shape{0, 4, 4}, Shape{2, 0, 3}, Shape{2, 3, 0}}) {
    const LayoutPtr made = block_topk(Tensor::empty(shape, f32, test_device()), 2);
    CHECK(made->nnz() == 0);
    CHECK(*made == *Layout::from_mask(Tensor::empty(shape, u8, test_device()), 32));
  }
}

TEST_CASE("block_topk makes layouts that attention takes") {
  const Reference scores = scores_of({2, 4, 5, 5}, 8);
  Reference flat({8, 5, 5});
  flat.values = scores.values;
  const Tensor q = random_reference({2, 4, 75, 16}, 1).tensor(f32, test_device());
  const Tensor k = random_reference({2, 4, 75, 16}, 2).tensor(f32, test_device());
  const LayoutPtr made =
      block_topk(scores.tensor(f32, test_device()), 2, {.block = 16, .causal = true});
  const LayoutPtr expected =
      Layout::from_mask(kept_by(flat, 2, {.causal = true}).tensor(u8, Device::cpu()), 16);
  const SparseAttentionOptions options{.causal = true};
  const SparseAttentionResult a = sparse_attention(q, k, q, made, options);
  const SparseAttentionGradients g = sparse_attention_backward(q, k, q, a, k, made, options);
  CHECK_FALSE(made->on_host());  // nothing had to look at it
  const SparseAttentionResult b = sparse_attention(q, k, q, expected, options);
  const SparseAttentionGradients h = sparse_attention_backward(q, k, q, b, k, expected, options);
  CHECK(Reference::of(a.out).values == Reference::of(b.out).values);
  CHECK(Reference::of(g.dq).values == Reference::of(h.dq).values);
  CHECK(Reference::of(g.dk).values == Reference::of(h.dk).values);
  CHECK(Reference::of(g.dv).values == Reference::of(h.dv).values);
}

TEST_CASE("layout_from_rows and layout_from_mask give what Layout::from_mask gives") {
  std::mt19937 generator(3);
  const Shape shapes[] = {{1, 1, 1}, {3, 5, 7},     {2, 9, 1},     {1, 40, 64},  {0, 4, 4},
                          {2, 0, 3}, {1, 66000, 3}, {1, 3000, 70}, {3, 33, 600}, {70, 3, 5}};
  for (const Shape& shape : shapes)
    for (const unsigned density : {0U, 3U, 10U}) {
      CAPTURE(to_string(shape));
      Reference mask(shape);
      std::vector<int32_t> offsets{0}, columns;
      for (int64_t line = 0; line < shape[0] * shape[1]; ++line) {
        for (int64_t c = 0; c < shape[2]; ++c) {
          if (generator() % 10 >= density) continue;
          mask.values[static_cast<size_t>(line * shape[2] + c)] = 1;
          columns.push_back(static_cast<int32_t>(c));
        }
        offsets.push_back(static_cast<int32_t>(columns.size()));
      }
      const auto tensor = [](const std::vector<int32_t>& words) {
        return Tensor::from(std::span<const int32_t>(words), {static_cast<int64_t>(words.size())})
            .to(test_device());
      };
      const RowListExtents extents{static_cast<int>(shape[0]), static_cast<int>(shape[1]),
                                   static_cast<int>(shape[2]), 16};
      check_same(*layout_from_rows(tensor(offsets), tensor(columns), extents), mask, 16);
      const auto nnz = static_cast<int64_t>(columns.size());
      for (const DType dtype : {boolean, f32, i64})
        check_same(*layout_from_mask(mask.tensor(dtype, test_device()), 16, nnz), mask, 16);
      if (shape[0] != 1) continue;
      const Tensor matrix = mask.tensor(u8, test_device()).select(0, 0);
      check_same(*layout_from_mask(matrix, 16, nnz), mask, 16);
    }
}

TEST_CASE("layout_from_mask and layout_from_rows: lists that are wrong lead nowhere else") {
  if (!test_device().is_cuda()) return;  // the CPU refuses them
  const auto check = [](const LayoutPtr& made) {
    const LayoutView v = made->view(test_device());
    const auto within = [&](const int32_t* list, int64_t count, int end) {
      const Tensor copy = Tensor::from_blob(const_cast<int32_t*>(list), {count}, i32, test_device())
                              .to(Device::cpu());
      for (int64_t i = 0; i < count; ++i) {
        CHECK(copy.data<int32_t>()[i] >= 0);
        CHECK(copy.data<int32_t>()[i] < end);
      }
    };
    within(v.row_offsets, int64_t{v.heads} * v.rows + 1, v.nnz + 1);
    within(v.head_of, v.nnz, v.heads);
    within(v.row_of, v.nnz, v.rows);
    within(v.col_of, v.nnz, v.cols);
    within(v.col_offsets, int64_t{v.heads} * v.cols + 1, v.nnz + 1);
    within(v.transposed, v.nnz, v.nnz);
    within(v.transposed_row, v.nnz, v.rows);
  };
  const Tensor mask = random_reference({3, 9, 12}, 9, 0, 1).tensor(f32, test_device());
  for (const int64_t nnz : {1, 100, 300}) check(layout_from_mask(mask, 16, nnz));
  check(layout_from_mask(zeros({3, 9, 12}, boolean, test_device()), 16, 7));
  const auto list = [](std::initializer_list<int32_t> words) {
    return Tensor::from<int32_t>(words, {static_cast<int64_t>(words.size())}).to(test_device());
  };
  const RowListExtents extents{.heads = 2, .rows = 2, .cols = 3, .block = 16};
  check(layout_from_rows(list({0, 3, 1, 9, 2}), list({1, 1, 7, -2, 0}), extents));
  check(layout_from_rows(list({5, 4, 3, 2, 1}), list({0, 0, 0, 0, 0}), extents));
}

TEST_CASE("layout_from_documents keeps the blocks that a document's tokens share") {
  const std::vector<int64_t> lists[] = {{0},
                                        {0, 0},
                                        {0, 1},
                                        {0, 100},
                                        {0, 16, 48, 64},
                                        {0, 0, 5, 5, 5, 23, 40, 41, 90, 90},
                                        {0, 7, 8, 9, 31, 33, 64, 200, 201}};
  for (const std::vector<int64_t>& starts : lists)
    for (const int block : {8, 16, 64})
      for (const bool causal : {false, true}) {
        CAPTURE(starts);
        CAPTURE(block);
        CAPTURE(causal);
        const int64_t rows = ceil_div(starts.back(), block);
        Reference mask({1, rows, rows});
        for (size_t d = 1; d < starts.size(); ++d)
          for (int64_t i = starts[d - 1]; i < starts[d]; ++i)
            for (int64_t j = starts[d - 1]; j < (causal ? i + 1 : starts[d]); ++j)
              mask.at({0, i / block, j / block}) = 1;
        const auto nnz =
            static_cast<int64_t>(std::count(mask.values.begin(), mask.values.end(), 1.0));
        const DocumentExtents extents{starts.back(), nnz, block, causal};
        Reference numbers({static_cast<int64_t>(starts.size())});
        std::copy(starts.begin(), starts.end(), numbers.values.begin());
        for (const DType dtype : {i32, i64})
          check_same(*layout_from_documents(numbers.tensor(dtype, test_device()), extents), mask,
                     block);
        const Tensor pairs =
            stack({numbers.tensor(i64, test_device()), numbers.tensor(i64, test_device())}, 1);
        check_same(*layout_from_documents(pairs.select(1, 0), extents), mask, block);
      }
}

TEST_CASE("layout_from_rows, layout_from_mask and block_topk refuse what does not fit") {
  const auto list = [](std::initializer_list<int32_t> words) {
    return Tensor::from<int32_t>(words, {static_cast<int64_t>(words.size())});
  };
  const RowListExtents two{.heads = 1, .rows = 2, .cols = 3, .block = 16};
  CHECK_THROWS_WITH_AS(layout_from_rows(list({0, 1}), list({0}), two),
                       "layout_from_rows: row_offsets [2] are not [1 heads * 2 rows + 1]", Error);
  CHECK_THROWS_WITH_AS(layout_from_rows(list({0, 2, 1}), list({0}), two),
                       "layout_from_rows: row_offsets from 0 to 1 do not ascend from 0 to 1",
                       Error);
  CHECK_THROWS_WITH_AS(layout_from_rows(list({0, 1, 2}), list({0, 3}), two),
                       "layout_from_rows: row 1 has column 3 of 3", Error);
  CHECK_THROWS_WITH_AS(layout_from_rows(list({0, 2, 2}), list({1, 1}), two),
                       "layout_from_rows: columns 1 and 1 of row 0 do not ascend", Error);
  CHECK_THROWS_WITH_AS(layout_from_rows(list({0, 0, 0}), Tensor::empty({0}, i64), two),
                       "layout_from_rows: row_offsets are i32 and columns i64, not i32", Error);
  const Tensor mask = Tensor::from<int32_t>({1, 0, 1, 1}, {2, 2});
  CHECK_THROWS_WITH_AS(layout_from_mask(mask, 16, 2),
                       "layout_from_mask: the mask has 3 blocks, not 2", Error);
  CHECK_THROWS_WITH_AS(layout_from_mask(mask, 16, 5), "layout_from_mask: 5 blocks of a mask [2, 2]",
                       Error);
  CHECK_THROWS_WITH_AS(layout_from_mask(mask, 20, 3),
                       "layout_from_mask: block 20 is none of 8, 16, 32, 64 and 128", Error);
  CHECK_THROWS_WITH_AS(layout_from_mask(mask.select(0, 0), 16, 1),
                       "layout_from_mask: mask [2] is not [rows, cols] or [heads, rows, cols]",
                       Error);
  const Tensor scores = Tensor::empty({2, 2}, f32);
  CHECK_THROWS_WITH_AS(block_topk(scores, 0), "block_topk: k is 0", Error);
  CHECK_THROWS_WITH_AS(block_topk(scores, 1, {.block = 20}),
                       "layout: block 20 is none of 8, 16, 32, 64 and 128", Error);
}

TEST_CASE("layout_from_documents refuses what does not fit") {
  const Tensor starts = Tensor::from<int32_t>({0, 20, 20, 50}, {4});
  const auto from = [&](int64_t tokens, int64_t nnz, int block = 16) {
    return layout_from_documents(starts, {.tokens = tokens, .nnz = nnz, .block = block});
  };
  CHECK(from(50, 12)->nnz() == 12);
  CHECK_THROWS_WITH_AS(from(50, 9), "layout_from_documents: the documents have 12 blocks, not 9",
                       Error);
  CHECK_THROWS_WITH_AS(from(50, 3), "layout_from_documents: 3 blocks of 4 rows", Error);
  CHECK_THROWS_WITH_AS(from(51, 12), "layout_from_documents: starts do not ascend from 0 to 51",
                       Error);
  CHECK_THROWS_WITH_AS(from(-1, 12), "layout_from_documents: -1 tokens of 3 documents", Error);
  CHECK_THROWS_WITH_AS(from(50, 12, 20),
                       "layout_from_documents: block 20 is none of 8, 16, 32, 64 and 128", Error);
  const auto of = [](const Tensor& other) {
    return layout_from_documents(other, {.tokens = 50, .nnz = 12, .block = 16});
  };
  CHECK_THROWS_WITH_AS(of(Tensor::from<int32_t>({0, 60, 50}, {3})),
                       "layout_from_documents: starts do not ascend from 0 to 50", Error);
  CHECK_THROWS_WITH_AS(of(Tensor::from<int32_t>({1, 50}, {2})),
                       "layout_from_documents: starts do not ascend from 0 to 50", Error);
  CHECK_THROWS_WITH_AS(of(starts.view({2, 2})),
                       "layout_from_documents: starts [2, 2] are not [documents + 1]", Error);
  CHECK_THROWS_WITH_AS(of(starts.slice(0, 0, 1)), "layout_from_documents: 50 tokens of 0 documents",
                       Error);
  CHECK_THROWS_WITH_AS(of(cast(starts, f32)),
                       "layout_from_documents: dtype f32 is not supported; expected i32 or i64",
                       Error);
}
