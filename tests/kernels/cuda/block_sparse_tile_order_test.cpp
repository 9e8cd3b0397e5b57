// In which order the tiles of dsd on mma.sync are numbered, and how long each of them is.
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::cuda;

namespace {

/// Steps of two blocks that line `line` of op(S) takes in a head.
int steps_of(const test::Mask& mask, bool transposed, int head, int line) {
  int blocks = 0;
  for (int i = 0; i < (transposed ? mask.rows : mask.cols); ++i)
    blocks += transposed ? mask.has(head, i, line) : mask.has(head, line, i);
  return (blocks + 1) / 2;
}

}  // namespace

TEST_CASE("tile order: lines with the most blocks come first") {
  const test::Mask mask = test::Mask::random(3, 17, 23, 16, 0.3, 5);
  const LayoutPtr layout = mask.layout();
  for (const bool transposed : {false, true}) {
    const std::vector<int32_t>& lines = line_order_of(*layout, transposed, Device::cpu()).lines;
    std::vector<int> blocks;
    for (const int line : lines) {
      blocks.push_back(0);
      for (int head = 0; head < 3; ++head)
        for (int i = 0; i < (transposed ? 17 : 23); ++i)
          blocks.back() += transposed ? mask.has(head, i, line) : mask.has(head, line, i);
    }
    CHECK(std::is_sorted(blocks.rbegin(), blocks.rend()));
    std::vector<int32_t> all = lines;
    std::sort(all.begin(), all.end());
    REQUIRE(all.size() == (transposed ? 23 : 17));
    for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<int32_t>(i));
  }
}

TEST_CASE("tile order: each tile takes the steps of its line in its head, or in all heads") {
  const test::Mask mask = test::Mask::random(3, 17, 23, 16, 0.3, 7);
  const LayoutPtr layout = mask.layout();
  for (const bool transposed : {false, true})
    for (const bool sums_heads : {false, true}) {
      DsdProblem p;
      p.pattern = layout.get();
      p.layout = layout->view(Device::cpu());
      p.transposed = transposed;
      const Strides none{0, 0};
      p.batch = sums_heads ? StridedLoop<4>({2, 1}, {none, none, none, none})
                           : StridedLoop<4>({2, 3}, {none, none, none, Strides{0, 1}});
      p.sum = sums_heads ? StridedLoop<3>({1, 3}, {none, none, Strides{0, 1}})
                         : StridedLoop<3>({1, 1}, {none, none, none});
      const device::TileGrid grid{.row_tiles = 2, .col_tiles = 3, .c_aligned = true};
      const std::vector<int32_t>& lines = line_order_of(*layout, transposed, Device::cpu()).lines;
      const std::vector<int32_t> steps = tile_steps(p, lines, 2, grid);
      size_t at = 0;
      for (int item = 0; item < p.batch.numel(); ++item)
        for (int column = 0; column < 3; ++column)
          for (const int line : lines)
            for (int row = 0; row < 2; ++row, ++at) {
              int want = 0;
              for (int head = 0; head < 3; ++head)
                if (sums_heads || head == item % 3) want += steps_of(mask, transposed, head, line);
              REQUIRE(steps.at(at) == want);
            }
      CHECK(at == steps.size());
    }
}
