#include <bs/lib/patterns.h>
#include <bs/tests/support/picture.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;
using namespace bs::patterns;
using namespace bs::test;

namespace {
constexpr Size eight = {.heads = 1, .rows = 8};
}

TEST_CASE("pattern variable draws random columns") {
  const Size size = {.heads = 4, .rows = 32};
  VariableOptions options = {.windows = {1}, .globals = {}, .random_blocks = 5, .seed = 3};
  const LayoutPtr shared = variable(size, options);
  for (const std::string& line : picture(shared)) {
    CHECK(count(line) >= 5);
    CHECK(count(line) <= 6);
  }
  CHECK(picture(shared, 3) == picture(shared, 0));
  CHECK(*variable(size, options) == *shared);
  options.different_per_head = true;
  CHECK(picture(variable(size, options), 3) != picture(variable(size, options), 0));
  options.seed = 4;
  CHECK_FALSE(*variable(size, options) == *shared);

  options.causal = true;
  const LayoutPtr causal = variable(size, options);
  CHECK(is_causal(*causal));
  for (int row = 0; row < 5; ++row)  // shorter than 5: the whole row
    CHECK(count(picture(causal)[static_cast<size_t>(row)]) == row + 1);
}

TEST_CASE("pattern random has the number of blocks asked for") {
  for (const Size& size : {Size{.heads = 2, .rows = 13, .cols = 7}, Size{.rows = 1},
                           Size{.heads = 3, .rows = 40, .cols = 64}, Size{.rows = 0}})
    for (double density : {0.0, 0.1, 0.37, 0.5, 0.9, 1.0}) {
      const LayoutPtr layout = random(size, {.density = density, .seed = 5});
      const double all = size.rows * (size.cols == -1 ? size.rows : size.cols);
      for (int head = 0; head < size.heads; ++head)
        CHECK(layout->nnz(head) == std::llround(density * all));
    }
  const LayoutPtr causal = random({.heads = 2, .rows = 20}, {.density = 0.25, .causal = true});
  CHECK(is_causal(*causal));
  CHECK(causal->nnz(1) == std::llround(0.25 * 210));
  CHECK(picture(causal, 0) != picture(causal, 1));
  const LayoutPtr same = random({.heads = 2, .rows = 20}, {.different_per_head = false});
  CHECK(picture(same, 0) == picture(same, 1));
}

TEST_CASE("pattern random is the same everywhere, and even") {
  CHECK(picture(random({.rows = 4, .cols = 8}, {.density = 0.25, .seed = 42})) ==
        Picture{".#.#...#", ".#.#....", "........", "##.#...."});
  // Each of 48 places is taken by about a quarter of 4000 patterns: within 5 deviations of 1000.
  for (bool causal : {false, true}) {
    std::vector<int> taken(64);
    for (uint64_t seed = 0; seed < 4000; ++seed) {
      const LayoutPtr layout =
          random({.rows = 8}, {.density = 0.25, .seed = seed, .causal = causal});
      const LayoutView v = layout->view(Device::cpu());
      for (int32_t i = 0; i < v.nnz; ++i)
        ++taken[static_cast<size_t>(v.row_of[i] * 8 + v.col_of[i])];
    }
    for (size_t i = 0; i < 64; ++i) {
      if (causal && i % 8 > i / 8) continue;
      CHECK(taken[i] > 1000 - 5 * 28);
      CHECK(taken[i] < 1000 + 5 * 28);
    }
  }
}

TEST_CASE("pattern random refuses") {
  CHECK_THROWS_WITH_AS(random(eight, {.density = 1.5}), "random: density 1.5 is not in [0, 1]",
                       Error);
  CHECK_THROWS_WITH_AS(random({.rows = -2, .cols = -3}, {}),
                       "random: negative extent: 1 heads of -2 x -3 blocks", Error);
}

TEST_CASE("pattern of a mixture of experts") {
  // 3, 0, 9 and 8 tokens in blocks of 8: 1, 0, 2 and 1 block rows; 2 block columns an expert.
  const std::vector<int64_t> tokens = {3, 0, 9, 8};
  const LayoutPtr layout = moe(tokens, 16, 8);
  CHECK(layout->heads() == 1);
  CHECK(picture(layout) == Picture{"##......",  //
                                   "....##..",  //
                                   "....##..",  //
                                   "......##"});
  CHECK(moe({}, 16, 8)->nnz() == 0);
  CHECK_THROWS_WITH_AS(moe(tokens, 12, 8), "moe: a width of 12 is no multiple of the block 8",
                       Error);
  CHECK_THROWS_WITH_AS(moe(std::vector<int64_t>{4, -1}, 16, 8), "moe: -1 tokens for an expert",
                       Error);
}

TEST_CASE("pattern of stacked heads") {
  const LayoutPtr parts[] = {sliding_window({.heads = 2, .rows = 8}), dense({.rows = 8})};
  const LayoutPtr layout = stack_heads(parts);
  CHECK(layout->heads() == 3);
  CHECK(picture(layout, 0) == picture(parts[0], 0));
  CHECK(picture(layout, 1) == picture(parts[0], 1));
  CHECK(layout->nnz(2) == 64);
  const LayoutPtr other[] = {parts[0], dense({.rows = 8, .cols = 4})};
  CHECK_THROWS_WITH_AS(stack_heads(other),
                       "stack_heads: 8 x 8 blocks of 32 beside 8 x 4 blocks of 32", Error);
  CHECK_THROWS_WITH_AS(stack_heads({}), "stack_heads: no layout is given", Error);
}

TEST_CASE("pattern construction does not visit the dense matrix") {
  // 2^34 places, of which 2^20 or so are kept: visiting all would take half a minute or more.
  const Size size = {.rows = 1 << 17};
  CHECK(sliding_window(size, {.window_blocks = 9})->nnz() == 5 * (1 << 17) - 10);
  CHECK(bigbird(size, {.random_blocks = 2, .global_blocks = 0, .causal = true})->max_row() == 4);
  CHECK(random(size, {.density = 0x1p-15})->nnz() == 1 << 19);
}
