#pragma once
/** @file Which keys each tile of queries meets, and in which order: pure functions of a layout. */
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>

#include <cstdint>
#include <vector>

namespace bs::cuda {

using device::AttentionReach;

/** @brief How attention is cut: a CTA has `groups` times 64 queries, and meets `cols` keys at a
 *  time, several blocks side by side where blocks are smaller. */
struct AttentionTiling {
  int groups = 2;
  int cols = 128;
  int first = -AttentionReach::far;  ///< queries see keys that lie so far beyond them: `first` to
  int last = AttentionReach::far;    ///< `last`; more may be listed

  int rows() const { return 64 * groups; }
  /** @brief Keys that lie side by side, and how many of such pieces a tile has. */
  int piece(int block) const { return block < cols ? block : cols; }
  int pieces(int block) const { return cols / piece(block); }
  auto operator<=>(const AttentionTiling&) const =
      default;  // NOLINT(modernize-use-nullptr): its bug
};

/** @brief The tiles of keys of every tile of queries, as the device reads them
 *  (device/attention/warpgroup_attention_problem.cuh). */
struct AttentionTileLists {
  /** @brief A tile of queries and its records. */
  struct Item {
    int tile = 0, begin = 0, count = 0, padding = 0;
  };
  int heads = 0, tiles = 0;  ///< of the layout, and of queries of a head
  int ahead = 0;  ///< tiles of a head that have far more work than most, the most of any head
  std::vector<int> records;  ///< pieces + groups words each
  std::vector<Item> items;   ///< [heads * tiles], of each head those with the most work first
};

/** @brief The lists of a layout. A key that no piece fills is `layout.width()`, beyond the last.
 *  Tiles that all warpgroups keep come first; those that one keeps take turns with the others'. */
AttentionTileLists attention_tile_lists(const Layout& layout, const AttentionTiling& tiling);

/** @brief How many tiles of a head go ahead of all heads' others where nobody has counted which
 * have far more work: an eighth, so that a column that every row keeps does not begin last.
 *  @param[in] rows,side rows of a head, and those of a tile */
constexpr int attention_uncounted_ahead(int rows, int side) {
  return (rows + 8 * side - 1) / (8 * side);
}

}  // namespace bs::cuda
