#include <bs/lib/uneven_blocks.h>

#include <algorithm>
#include <limits>

namespace bs {

LayoutPtr layout_of_uneven_blocks(const Tensor& mask, int block_rows, int block_cols) {
  for (const int side : {block_rows, block_cols})
    BS_CHECK(side == 8 || side == 16 || side == 32 || side == 64 || side == 128,
             "layout_of_uneven_blocks: blocks of {} x {}, whose sides are not both 8, 16, 32, 64 "
             "or 128",
             block_rows, block_cols);
  const int side = std::min(block_rows, block_cols);
  const int down = block_rows / side, across = block_cols / side;
  const LayoutPtr blocks = Layout::from_mask(mask, side);
  const LayoutView view = blocks->view(Device::cpu());
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  BS_CHECK(int64_t{view.rows} * down < most && int64_t{view.cols} * across < most &&
               blocks->nnz() * down * across <= most,
           "layout_of_uneven_blocks: {} blocks of {} x {} in {} x {} make too many squares of {}",
           blocks->nnz(), block_rows, block_cols, view.rows, view.cols, side);
  std::vector<BlockIndex> squares;
  squares.reserve(static_cast<size_t>(blocks->nnz() * down * across));
  for (int32_t e = 0; e < view.nnz; ++e)
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j)
        squares.push_back(
            {view.head_of[e], view.row_of[e] * down + i, view.col_of[e] * across + j});
  return Layout::from_blocks(view.heads, view.rows * down, view.cols * across, side,
                             std::move(squares));
}

}  // namespace bs
