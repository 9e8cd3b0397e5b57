#include <bs/lib/layout.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

BS_HARNESS(layout) {
  const int heads = fuzz::take<int8_t>(bytes), rows = fuzz::take<int8_t>(bytes),
            cols = fuzz::take<int8_t>(bytes), block = fuzz::take<uint8_t>(bytes);
  std::vector<BlockIndex> blocks;
  while (!bytes.empty()) {
    const auto head = fuzz::take<int8_t>(bytes), row = fuzz::take<int8_t>(bytes),
               col = fuzz::take<int8_t>(bytes);
    blocks.push_back({head, row, col});
  }
  LayoutPtr layout;
  if (!fuzz::takes([&] { layout = Layout::from_blocks(heads, rows, cols, block, blocks); })) return;
  fuzz::require(layout->nnz() == static_cast<int64_t>(blocks.size()), "all blocks are there");
  for (const auto& [head, row, col] : blocks)
    fuzz::require(layout->contains(head, row, col), "each block is there");
  fuzz::require(*Layout::from_mask(layout->mask(), block) == *layout, "a pattern is its mask");
  fuzz::require(*layout->transpose()->transpose() == *layout, "and its transpose's transpose");
  fuzz::require(!to_string(*layout).empty() && !to_svg(*layout).empty(), "it can be drawn");
}
