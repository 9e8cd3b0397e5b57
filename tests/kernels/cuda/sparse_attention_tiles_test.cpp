#include <bs/tests/kernels/cuda/attention_tile_lists.h>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("sparse_attention: lists of tiles hold each block once, whatever the layout") {
  std::mt19937 random(7);
  for (const int block : {16, 32, 64, 128})
    for (const AttentionTiling tiling :
         {AttentionTiling{2, 128}, AttentionTiling{2, 128, -AttentionReach::far, 0},
          AttentionTiling{2, 64, -AttentionReach::far, 0}, AttentionTiling{3, 128},
          AttentionTiling{2, 128, -100, 0}, AttentionTiling{2, 128, -37, 45},
          AttentionTiling{2, 64, -AttentionReach::far, -70}, AttentionTiling{2, 128, 33, 200}})
      for (const double density : {0.0, 0.05, 0.3, 0.8, 1.0})
        for (const int rows : {0, 1, 2, 5, 13}) {
          const LayoutPtr layout =
              random_layout(random, 1 + rows % 2, rows, 3 + rows / 2 * 3, block, density);
          check_tile_lists(attention_tile_lists(*layout, tiling), *layout, tiling);
        }
}

TEST_CASE("sparse_attention: a tile that one warpgroup keeps is full, but for the last") {
  std::mt19937 random(11);
  const LayoutPtr layout = random_layout(random, 1, 2, 64, 64, 0.4);
  const AttentionTileLists lists = attention_tile_lists(*layout, {2, 128});
  REQUIRE(lists.tiles == 1);
  int products = 0, blocks = 0;
  for (size_t r = 0; r < lists.records.size() / 4; ++r)
    for (size_t group = 0; group < 2; ++group) {
      const int mask = lists.records[4 * r + 2 + group];
      products += mask != 0;
      blocks += (mask & 1) + (mask >> 1 & 1);
    }
  CHECK(blocks == layout->nnz());
  CHECK(products <= (blocks + 1) / 2 + 3);
}
