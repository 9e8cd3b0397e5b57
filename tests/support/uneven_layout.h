#pragma once
/** @file Random layouts with rows of unequal lengths. */
#include <bs/lib/layout.h>

#include <random>
#include <utility>
#include <vector>

namespace bs::test {

/** @brief Each block with a chance of one in `kept`, in every seventh row one in a third of it. */
inline LayoutPtr uneven_layout(std::mt19937& random, int heads, int rows, int cols, int block,
                               unsigned kept) {
  std::vector<BlockIndex> blocks;
  for (int head = 0; head < heads; ++head)
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        if (random() % (row % 7 == 0 ? 1 + kept / 3 : kept) == 0)
          blocks.push_back({head, row, col});
  return Layout::from_blocks(heads, rows, cols, block, std::move(blocks));
}

}  // namespace bs::test
