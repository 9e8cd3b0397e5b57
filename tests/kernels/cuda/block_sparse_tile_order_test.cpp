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
    const std::vector<int32_t> lines = sorted_lines(*layout, transposed);
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
      const DsdShape shape{.transposed = transposed,
                           .batch = sums_heads ? 2 : 6,
                           .terms = sums_heads ? 3 : 1,
                           .sums_heads = sums_heads};
      const std::vector<int32_t> lines = sorted_lines(*layout, transposed);
      const std::vector<int32_t> steps = tile_steps(*layout, shape, lines, 2, {2, 3});
      size_t at = 0;
      for (int item = 0; item < shape.batch; ++item)
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
