#pragma once
/** @file What lists of tiles of attention are to hold, for lists that the host or a device made. */
#include <bs/kernels/cuda/attention/sparse_attention_tiles.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace bs::cuda {

/// Blocks of every head at random.
inline LayoutPtr random_layout(std::mt19937& random, int heads, int rows, int cols, int block,
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

inline Met met_by(const AttentionTileLists& lists, const Layout& layout,
                  const AttentionTiling& tiling) {
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
inline bool meets(int query, int queries, int key, int keys, const AttentionTiling& tiling) {
  for (int i = query; i < query + queries; ++i)
    for (int j = key; j < key + keys; ++j)
      if (tiling.first <= j - i && j - i <= tiling.last) return true;
  return false;
}

/// Whether each piece that a query of a block may see is met once.
inline void check_tile_lists(const AttentionTileLists& lists, const Layout& layout,
                             const AttentionTiling& tiling) {
  CAPTURE(layout.block());
  CAPTURE(tiling.groups);
  CAPTURE(tiling.cols);
  CAPTURE(tiling.first);
  CAPTURE(tiling.last);
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

}  // namespace bs::cuda
