#include <bs/kernels/cuda/attention/sparse_attention_tiles.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

using namespace bs;
using namespace bs::cuda;

namespace {

LayoutPtr random_layout(std::mt19937& random, int heads, int rows, int cols, int block,
                        double density) {
  std::vector<BlockIndex> blocks;
  std::bernoulli_distribution kept(density);
  for (int h = 0; h < heads; ++h)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c)
        if (kept(random)) blocks.push_back({h, r, c});
  return Layout::from_blocks(heads, rows, cols, block, blocks);
}

/// How often each (head, piece's first query, piece's first key) is met.
using Met = std::map<std::tuple<int, int, int>, int>;

Met met_by(const AttentionTileLists& lists, const Layout& layout, const AttentionTiling& tiling) {
  const int pieces = tiling.pieces(layout.block()), record = pieces + tiling.groups;
  const int side = std::min(layout.block(), 64);  // queries that a bit speaks of
  Met met;
  for (int head = 0; head < lists.heads; ++head)
    for (int tile = 0; tile < lists.tiles; ++tile) {
      const auto& item = lists.items[static_cast<size_t>(head * lists.tiles + tile)];
      for (int r = item.begin; r < item.begin + item.count; ++r) {
        const int* const words = lists.records.data() + int64_t{r} * record;
        unsigned any = 0;
        for (int group = 0; group < tiling.groups; ++group) {
          const auto mask = static_cast<unsigned>(words[pieces + group]);
          any |= mask;
          for (int bit = 0; bit < 32; ++bit) {
            if ((mask >> bit & 1) == 0) continue;
            REQUIRE(bit / pieces < 64 / side);
            ++met[{head, item.tile * tiling.rows() + group * 64 + bit / pieces * side,
                   words[bit % pieces]}];
          }
        }
        CHECK(any != 0);
      }
    }
  return met;
}

/// Whether any of a block's queries sees any key of a piece, one by one.
bool meets(int query, int queries, int key, int keys, const AttentionTiling& tiling) {
  for (int i = query; i < query + queries; ++i)
    for (int j = key; j < key + keys; ++j)
      if (tiling.first <= j - i && j - i <= tiling.last) return true;
  return false;
}

void check(const Layout& layout, const AttentionTiling& tiling) {
  CAPTURE(layout.block());
  CAPTURE(tiling.groups);
  CAPTURE(tiling.cols);
  CAPTURE(tiling.first);
  CAPTURE(tiling.last);
  const AttentionTileLists lists = attention_tile_lists(layout, tiling);
  const int block = layout.block(), piece = tiling.piece(block), side = std::min(block, 64);
  REQUIRE(lists.heads == layout.heads());
  REQUIRE(lists.items.size() == static_cast<size_t>(lists.heads * lists.tiles));
  Met wanted;
  for (int head = 0; head < layout.heads(); ++head)
    for (int query = 0; query < layout.height(); query += side)
      for (int key = 0; key < layout.width(); key += piece)
        if (layout.contains(head, query / block, key / block) &&
            meets(query / block * block, block, key, piece, tiling))
          wanted[{head, query, key}] = 1;
  CHECK(met_by(lists, layout, tiling) == wanted);
  for (int head = 0; head < lists.heads; ++head) {
    std::vector<int> order;
    for (int i = head * lists.tiles; i < (head + 1) * lists.tiles; ++i)
      order.push_back(lists.items[static_cast<size_t>(i)].tile);
    std::sort(order.begin(), order.end());
    for (int tile = 0; tile < lists.tiles; ++tile) CHECK(order[static_cast<size_t>(tile)] == tile);
  }
}

}  // namespace

TEST_CASE("sparse_attention: lists of tiles hold each block once, whatever the layout") {
  std::mt19937 random(7);
  for (const int block : {16, 32, 64, 128})
    for (const AttentionTiling tiling :
         {AttentionTiling{2, 128}, AttentionTiling{2, 128, -AttentionReach::far, 0},
          AttentionTiling{2, 64, -AttentionReach::far, 0}, AttentionTiling{3, 128},
          AttentionTiling{2, 128, -100, 0}, AttentionTiling{2, 128, -37, 45},
          AttentionTiling{2, 64, -AttentionReach::far, -70}, AttentionTiling{2, 128, 33, 200}})
      for (const double density : {0.0, 0.05, 0.3, 0.8, 1.0})
        for (const int rows : {0, 1, 2, 5, 13})
          check(*random_layout(random, 1 + rows % 2, rows, 3 + rows / 2 * 3, block, density),
                tiling);
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
