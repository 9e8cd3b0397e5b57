#include <bs/lib/patterns.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

using namespace bs;
using namespace bs::patterns;

namespace {

using Picture = std::vector<std::string>;

/// One head, a '#' for each block kept.
Picture picture(const LayoutPtr& layout, int head = 0) {
  Picture lines;
  for (int row = 0; row < layout->rows(); ++row) {
    std::string line;
    for (int col = 0; col < layout->cols(); ++col)
      line += layout->contains(head, row, col) ? '#' : '.';
    lines.push_back(line);
  }
  return lines;
}

constexpr Size eight = {.heads = 1, .rows = 8};

bool is_causal(const Layout& layout) {
  const LayoutView v = layout.view(Device::cpu());
  for (int32_t i = 0; i < v.nnz; ++i)
    if (v.col_of[i] > v.row_of[i]) return false;
  return true;
}

int count(const std::string& line) {
  return static_cast<int>(std::count(line.begin(), line.end(), '#'));
}

}  // namespace

TEST_CASE("pattern dense") {
  const LayoutPtr layout = dense({.heads = 2, .rows = 3, .cols = 5, .block = 64});
  CHECK(layout->block() == 64);
  CHECK(picture(layout, 1) == Picture(3, "#####"));
  CHECK(layout->density() == 1);
  CHECK(picture(dense({.rows = 3}, {.causal = true})) == Picture{"#..", "##.", "###"});
  CHECK(dense({.rows = 0})->nnz() == 0);
  CHECK(dense({.heads = 0, .rows = 4})->nnz() == 0);
  CHECK_THROWS_WITH_AS(dense({.rows = 3, .cols = 5}, {.causal = true}),
                       "dense: the pattern must be square, not 3 x 5 blocks", Error);
  CHECK_THROWS_WITH_AS(dense({.rows = -3}), "dense: negative extent: 1 heads of -3 x -1 blocks",
                       Error);
}

TEST_CASE("pattern fixed") {
  CHECK(picture(fixed(eight)) == Picture{"####...#",  //
                                         "####...#",  //
                                         "####...#",  //
                                         "####...#",  //
                                         "...#####",  //
                                         "...#####",  //
                                         "...#####",  //
                                         "...#####"});
  CHECK(picture(fixed(eight, {.causal = true})) == Picture{"#.......",  //
                                                           "##......",  //
                                                           "###.....",  //
                                                           "####....",  //
                                                           "...##...",  //
                                                           "...###..",  //
                                                           "...####.",  //
                                                           "...#####"});
  CHECK(picture(fixed(eight, {.horizontal = true})) == Picture{"####...#",  //
                                                               "####...#",  //
                                                               "####...#",  //
                                                               "########",  //
                                                               "...#####",  //
                                                               "...#####",  //
                                                               "...#####",  //
                                                               "########"});
}

TEST_CASE("pattern fixed with a short last window") {
  // Windows [0, 3), [3, 6), [6, 8): the last one's global would be block 8, so it is 7.
  CHECK(picture(fixed(eight, {.local_blocks = 3})) == Picture{"###..#.#",  //
                                                              "###..#.#",  //
                                                              "###..#.#",  //
                                                              "..####.#",  //
                                                              "..####.#",  //
                                                              "..####.#",  //
                                                              "..#..###",  //
                                                              "..#..###"});
  // One window longer than the pattern.
  CHECK(picture(fixed({.rows = 2}, {.local_blocks = 4, .global_blocks = 4})) ==
        Picture{"##", "##"});
  CHECK(fixed({.rows = 0})->nnz() == 0);
}

TEST_CASE("pattern fixed stays causal with several global blocks") {
  // Columns 2, 3 and 6, 7 are global; row 2 must not see column 3, nor row 6 column 7.
  CHECK(picture(fixed(eight, {.global_blocks = 2, .causal = true})) == Picture{"#.......",  //
                                                                               "##......",  //
                                                                               "###.....",  //
                                                                               "####....",  //
                                                                               "..###...",  //
                                                                               "..####..",  //
                                                                               "..#####.",  //
                                                                               "..######"});
}

TEST_CASE("pattern fixed with a global pattern for each head") {
  const LayoutPtr layout = fixed({.heads = 5, .rows = 8}, {.global_patterns = 4, .causal = true});
  CHECK(picture(layout, 0) == picture(fixed(eight, {.causal = true})));
  CHECK(picture(layout, 1) == Picture{"#.......",  //
                                      "##......",  //
                                      "###.....",  //
                                      "####....",  //
                                      "..#.#...",  //
                                      "..#.##..",  //
                                      "..#.###.",  //
                                      "..#.####"});
  CHECK(picture(layout, 3) == Picture{"#.......",  //
                                      "##......",  //
                                      "###.....",  //
                                      "####....",  //
                                      "#...#...",  //
                                      "#...##..",  //
                                      "#...###.",  //
                                      "#...####"});
  CHECK(picture(layout, 4) == picture(layout, 0));
}

TEST_CASE("pattern fixed refuses") {
  CHECK_THROWS_WITH_AS(fixed(eight, {.local_blocks = 4, .global_blocks = 3}),
                       "fixed: 3 global blocks do not divide a window of 4", Error);
  CHECK_THROWS_WITH_AS(fixed(eight, {.local_blocks = 4, .global_blocks = 2, .global_patterns = 3}),
                       "fixed: 3 global patterns; a window of 4 blocks has 2 groups of 2", Error);
  CHECK_THROWS_WITH_AS(fixed(eight, {.horizontal = true, .causal = true}),
                       "fixed: causal patterns have no horizontal globals", Error);
  CHECK_THROWS_WITH_AS(fixed({.rows = 8, .cols = 4}),
                       "fixed: the pattern must be square, not 8 x 4 blocks", Error);
}

TEST_CASE("pattern strided") {
  CHECK(picture(strided(eight, {.stride = 3})) == Picture{"#.......",  //
                                                          "##......",  //
                                                          "###.....",  //
                                                          "####....",  //
                                                          ".####...",  //
                                                          "..####..",  //
                                                          "#..####.",  //
                                                          ".#..####"});
  CHECK(picture(strided(eight, {.stride = 3, .causal = false})) == Picture{"####..#.",  //
                                                                           "#####..#",  //
                                                                           "######..",  //
                                                                           "#######.",  //
                                                                           ".#######",  //
                                                                           "..######",  //
                                                                           "#..#####",  //
                                                                           ".#..####"});
  const LayoutPtr heads = strided({.heads = 3, .rows = 8}, {.stride = 3, .alternate_heads = true});
  CHECK(picture(heads, 0) == Picture{"#.......",  //
                                     "##......",  //
                                     "###.....",  //
                                     ".###....",  //
                                     "..###...",  //
                                     "...###..",  //
                                     "....###.",  //
                                     ".....###"});
  CHECK(picture(heads, 1) == Picture{"#.......",  //
                                     ".#......",  //
                                     "..#.....",  //
                                     "#..#....",  //
                                     ".#..#...",  //
                                     "..#..#..",  //
                                     "#..#..#.",  //
                                     ".#..#..#"});
  CHECK(picture(heads, 2) == picture(heads, 0));
  CHECK(heads->nnz(0) != heads->nnz(1));
  CHECK(*strided(eight, {.stride = 1 << 30}) == *dense(eight, {.causal = true}));
  CHECK_THROWS_WITH_AS(strided(eight, {.stride = 0}), "strided: stride 0 is not positive", Error);
}

TEST_CASE("pattern variable") {
  CHECK(picture(variable(eight, {.windows = {1, 3, 2}, .globals = {{0, 1}, {6, 9}}})) ==
        Picture{"#.....##",  //
                "####..##",  //
                "####..##",  //
                "####..##",  //
                "#...####",  //
                "#...####",  //
                "#.....##",  //
                "#.....##"});
  CHECK(picture(
            variable(eight, {.windows = {2}, .globals = {{3, 5}, {9, 10}}, .horizontal = true})) ==
        Picture{"##.##...",  //
                "##.##...",  //
                "..###...",  //
                "########",  //
                "########",  //
                "...###..",  //
                "...##.##"   //
                ,
                "...##.##"});
  CHECK(picture(variable(eight, {.windows = {5}, .globals = {{1, 3}}, .causal = true})) ==
        Picture{"#.......",  //
                "##......",  //
                "###.....",  //
                "####....",  //
                "#####...",  //
                ".##..#..",  //
                ".##..##.",  //
                ".##..###"});
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

TEST_CASE("pattern variable refuses") {
  CHECK_THROWS_WITH_AS(variable(eight, {.windows = {}}), "variable: no window is given", Error);
  CHECK_THROWS_WITH_AS(variable(eight, {.windows = {2, 0}}), "variable: a window of 0 blocks",
                       Error);
  CHECK_THROWS_WITH_AS(variable(eight, {.globals = {{2, 2}}}),
                       "variable: global blocks [2, 2) are no range", Error);
  CHECK_THROWS_WITH_AS(variable(eight, {.random_blocks = 9}),
                       "variable: 9 random blocks in rows of 8", Error);
  CHECK_THROWS_WITH_AS(variable(eight, {.horizontal = true, .causal = true}),
                       "variable: causal patterns have no horizontal globals", Error);
}

TEST_CASE("pattern bigbird") {
  CHECK(picture(bigbird(eight, {.random_blocks = 0, .window_blocks = 3, .global_blocks = 2})) ==
        Picture{"########",  //
                "########",  //
                "####....",  //
                "#####...",  //
                "##.###..",  //
                "##..###.",  //
                "##...###",  //
                "##....##"});
  CHECK(picture(bigbird(eight, {.random_blocks = 0, .causal = true})) == Picture{"#.......",  //
                                                                                 "##......",  //
                                                                                 "###.....",  //
                                                                                 "#.##....",  //
                                                                                 "#..##...",  //
                                                                                 "#...##..",  //
                                                                                 "#....##.",  //
                                                                                 "#.....##"});
  const Size size = {.heads = 2, .rows = 64};
  const LayoutPtr drawn =
      bigbird(size, {.random_blocks = 3, .seed = 1, .different_per_head = true});
  const LayoutPtr base = bigbird(size, {.random_blocks = 0});
  std::set<int> random_columns;
  for (int head : {0, 1})
    for (int row = 1; row < 64; ++row) {
      const auto at = static_cast<size_t>(row);
      const int extra = count(picture(drawn, head)[at]) - count(picture(base, head)[at]);
      CHECK(extra >= 0);
      CHECK(extra <= 3);
      for (int col = 0; col < 64; ++col)
        if (drawn->contains(head, row, col) && !base->contains(head, row, col))
          random_columns.insert(col);
    }
  CHECK(random_columns.size() > 50);  // they are spread over the row
  CHECK(picture(drawn, 0) != picture(drawn, 1));
  // The first rows are shorter than the number drawn.
  const LayoutPtr causal = bigbird(size, {.random_blocks = 3, .causal = true});
  CHECK(is_causal(*causal));
  CHECK(picture(causal)[1] == "##" + std::string(62, '.'));

  CHECK_THROWS_WITH_AS(bigbird(eight, {.window_blocks = 9}),
                       "bigbird: a window of 9 blocks in a pattern of 8", Error);
  CHECK_THROWS_WITH_AS(bigbird(eight, {.random_blocks = 9}),
                       "bigbird: 9 random blocks in rows of 8", Error);
  CHECK_THROWS_WITH_AS(bigbird(eight, {.global_blocks = 9}),
                       "bigbird: 9 global blocks in a pattern of 8", Error);
}

TEST_CASE("pattern longformer") {
  CHECK(picture(longformer(eight, {.window_blocks = 3, .globals = {{0, 1}, {5, 6}}})) ==
        Picture{"########",  //
                "###..#..",  //
                "####.#..",  //
                "#.####..",  //
                "#..###..",  //
                "########",  //
                "#....###",  //
                "#....###"});
  CHECK(picture(longformer(eight, {.window_blocks = 5, .globals = {{4, 99}}, .causal = true})) ==
        Picture{"#.......",  //
                "##......",  //
                "###.....",  //
                ".###....",  //
                "#####...",  //
                "######..",  //
                "#######.",  //
                "########"});
  CHECK_THROWS_WITH_AS(longformer(eight, {.globals = {{-1, 2}}}),
                       "longformer: global blocks [-1, 2) are no range", Error);
  CHECK_THROWS_WITH_AS(longformer({.rows = 2}),
                       "longformer: a window of 3 blocks in a pattern of 2", Error);
}

TEST_CASE("pattern sliding window") {
  CHECK(picture(sliding_window(eight, {.window_blocks = 5})) == Picture{"#.......",  //
                                                                        "##......",  //
                                                                        "###.....",  //
                                                                        ".###....",  //
                                                                        "..###...",  //
                                                                        "...###..",  //
                                                                        "....###.",  //
                                                                        ".....###"});
  // An even number is as wide as the next odd one.
  for (int window : {2, 3})
    CHECK(picture(sliding_window(eight, {.window_blocks = window, .causal = false})) ==
          Picture{"##......",  //
                  "###.....",  //
                  ".###....",  //
                  "..###...",  //
                  "...###..",  //
                  "....###.",  //
                  ".....###",  //
                  "......##"});
  CHECK(picture(sliding_window({.rows = 1}, {.window_blocks = 1})) == Picture{"#"});
  CHECK_THROWS_WITH_AS(sliding_window(eight, {.window_blocks = 0}),
                       "sliding_window: a window of 0 blocks in a pattern of 8", Error);
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
