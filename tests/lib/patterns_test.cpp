#include <bs/lib/patterns.h>
#include <bs/tests/support/picture.h>
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::patterns;
using namespace bs::test;

namespace {
constexpr Size eight = {.heads = 1, .rows = 8};
}

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
  CHECK_THROWS_WITH_AS(fixed({.rows = 1 << 30}),
                       "fixed: 1 heads of 1073741824 x 1073741824 blocks; each is at most 16777216",
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

TEST_CASE("pattern documents") {
  // Blocks of 8 tokens: documents of 8, 12, 0, 3 and 14 tokens.
  const std::vector<int64_t> starts{0, 8, 20, 20, 23, 37};
  CHECK(picture(documents(starts, 8)) == Picture{"#....",  //
                                                 ".##..",  //
                                                 ".####",  //
                                                 "..###",  //
                                                 "..###"});
  CHECK(picture(documents(starts, 8, {.causal = true})) == Picture{"#....",  //
                                                                   ".#...",  //
                                                                   ".##..",  //
                                                                   "..##.",  //
                                                                   "..###"});
  CHECK(documents(std::vector<int64_t>{0}, 16)->nnz() == 0);
  CHECK(documents(std::vector<int64_t>{0, 0, 1}, 16)->nnz() == 1);
}

TEST_CASE("pattern documents keeps the blocks in which a document has a query and a key") {
  std::mt19937 generator(2);
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> starts{0};
    for (auto count = 1 + generator() % 6; count > 0; --count)
      starts.push_back(starts.back() + static_cast<int64_t>(generator() % 40));
    for (const bool causal : {false, true}) {
      const LayoutPtr layout = documents(starts, 8, {.causal = causal});
      std::set<std::pair<int64_t, int64_t>> kept;
      for (size_t d = 1; d < starts.size(); ++d)
        for (int64_t i = starts[d - 1]; i < starts[d]; ++i)
          for (int64_t j = starts[d - 1]; j < (causal ? i + 1 : starts[d]); ++j)
            kept.insert({i / 8, j / 8});
      CHECK(layout->nnz() == static_cast<int64_t>(kept.size()));
      for (const auto& [row, col] : kept)
        CHECK(layout->contains(0, static_cast<int>(row), static_cast<int>(col)));
    }
  }
}

TEST_CASE("pattern documents refuses starts that do not ascend") {
  CHECK_THROWS_WITH_AS(documents(std::vector<int64_t>{0, 5, 4}, 8),
                       "documents: 3 starts do not ascend from 0", Error);
  CHECK_THROWS_WITH_AS(documents({}, 8), "documents: 0 starts do not ascend from 0", Error);
  CHECK_THROWS_WITH_AS(documents(std::vector<int64_t>{0, int64_t{1} << 40}, 8),
                       "documents: 1 heads of 2147483647 x 2147483647 blocks; each is at most "
                       "16777216",
                       Error);
}
