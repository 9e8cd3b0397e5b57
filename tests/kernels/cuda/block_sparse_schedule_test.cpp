#include <bs/kernels/cuda/block_sparse/plan/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tf32_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tf32_schedule.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_operands.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/kernels/cuda/work_pieces.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/uneven_layout.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>

using namespace bs;
using namespace bs::cuda;
using bs::test::check_pieces;

TEST_CASE("schedule: strips list what their rows keep") {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const int heads = 1 + static_cast<int>(random() % 3), rows = static_cast<int>(random() % 40);
    const int cols = static_cast<int>(random() % 200), side = 1 << random() % 4;
    std::vector<BlockIndex> blocks;
    const auto kept = 1 + random() % 12;
    for (int head = 0; head < heads; ++head)
      for (int row = 0; row < rows; ++row)
        for (int col = 0; col < cols; ++col)
          if (random() % kept == 0) blocks.push_back({head, row, col});
    const LayoutPtr layout = Layout::from_blocks(heads, rows, cols, 16, blocks);
    for (const bool transposed : {false, true}) {
      const BlockSparseStrips strips(*layout, transposed, side, Device::cpu());
      const int lines = transposed ? cols : rows;
      REQUIRE(strips.list.strips == (lines + side - 1) / side);
      std::map<std::array<int, 3>, int> expected;  // head, line, place along it
      for (size_t b = 0; b < blocks.size(); ++b)
        expected[{blocks[b].head, transposed ? blocks[b].col : blocks[b].row,
                  transposed ? blocks[b].row : blocks[b].col}] = static_cast<int>(b);
      size_t found = 0, wrong = 0;
      for (int strip = 0; strip < heads * strips.list.strips; ++strip) {
        const int head = strip / strips.list.strips, first = strip % strips.list.strips * side;
        const int begin = strips.offsets[static_cast<size_t>(strip)];
        for (int e = begin; e < strips.list.offsets[strip + 1]; ++e) {
          int present = 0;
          for (int r = 0; r < side; ++r) {
            const int block = strips.list.blocks[int64_t{e} * side + r];
            const auto it = expected.find({head, first + r, strips.list.cols[e]});
            wrong += block != (it == expected.end() ? -1 : it->second);
            present += block >= 0;
          }
          wrong += present == 0;
          wrong += e > begin && strips.list.cols[e] <= strips.list.cols[e - 1];
          found += static_cast<size_t>(present);
        }
      }
      CHECK(wrong == 0);
      CHECK(found == blocks.size());
      for (int rank = 0; rank < heads * strips.list.strips; ++rank) {
        CHECK(strips.list.order[rank] / strips.list.strips == rank / strips.list.strips);
        if (rank % strips.list.strips > 0)
          CHECK(strips.length(strips.list.order[rank - 1]) >=
                strips.length(strips.list.order[rank]));
      }
    }
  }
}

TEST_CASE("schedule: each item of dsd is as long as the strips of its own head") {
  std::mt19937 random(11);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  for (int i = 0; i < 100; ++i) {
    const int block = 16 << below(4), heads = 1 + below(4), rows = 1 + below(40), cols = 50;
    const bool transposed = below(2) == 1, sums_heads = heads > 1 && below(2) == 1;
    std::vector<BlockIndex> blocks;
    for (int head = 0; head < heads; ++head)
      for (int row = 0; row < rows; ++row)
        for (int col = 0; col < cols; ++col)
          if (below(1 + (row + 5 * head) % 13) == 0) blocks.push_back({head, row, col});
    const LayoutPtr layout = Layout::from_blocks(heads, rows, cols, block, blocks);
    const int side = WarpgroupTile::dsd_rows(block);
    const BlockSparseStrips strips(*layout, transposed, side, Device::cpu());
    const int batch = sums_heads ? 1 + below(3) : heads * (1 + below(3)), tiles = 1 + below(3);
    const int others = 1 + below(2);  // products that are summed for each head
    const DsdExtent extent{.transposed = transposed,
                           .cols = 64,
                           .columns = batch * tiles,
                           .products = others * (sums_heads ? heads : 1),
                           .tiles = tiles,
                           .sums_heads = sums_heads};
    const std::vector<int32_t> items = dsd_items(strips, block, extent);
    REQUIRE(items.size() == static_cast<size_t>(strips.list.strips * batch * tiles));
    // Stages of one head's strip: columns that any of its rows keeps, 64 elements deep each.
    const auto stages = [&](int head, int strip) {
      std::set<int> kept;
      for (const BlockIndex& b : blocks) {
        const int line = transposed ? b.col : b.row;
        if (b.head == head && line / side == strip) kept.insert(transposed ? b.row : b.col);
      }
      return (static_cast<int>(kept.size()) * block + 63) / 64;
    };
    size_t wrong = 0;
    for (int item = 0; item < static_cast<int>(items.size()); ++item) {
      const int rank = item / (batch * tiles), z = item % (batch * tiles) / tiles;
      const int first = sums_heads ? 0 : z % heads;
      const int strip = strips.list.order[first * strips.list.strips + rank] % strips.list.strips;
      int steps = 0;
      for (int h = 0; h < heads; ++h)
        if (sums_heads || h == first) steps += others * stages(h, strip);
      wrong += items[static_cast<size_t>(item)] != steps;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("schedule: extents of dsd that differ have keys that do") {
  // Block rows of a strip by 16-bit tiles follow from the block; of f32 there may be four, or
  // fewer.
  std::vector<DsdExtent> kinds;
  for (const bool gathered : {false, true}) {
    for (const int cols : {64, 128, 256})
      kinds.push_back({.cols = cols, .element = 2, .rows = 4, .gathered = gathered});
    for (const int rows : {2, 4})
      kinds.push_back({.cols = 256, .element = 4, .rows = rows, .gathered = gathered});
    kinds.push_back({.cols = 256, .element = 4, .rows = 2, .gathered = gathered, .in_parts = true});
  }
  kinds.push_back({.cols = 512, .element = 4, .rows = 1});
  std::set<uint64_t> keys;
  size_t extents = 0;
  for (DsdExtent x : kinds)
    for (x.transposed = false;; x.transposed = true) {
      for (const int64_t columns : {1, 2, 3, 4096})
        for (const int64_t products : {1, 2, 3, 4, (1 << 22) - 1})
          for (const int device : {0, 1, 7})
            for (const bool by_head : {false, true})
              for (const bool other : {false, true}) {
                if (columns == 1 && !by_head && other) continue;
                x.columns = columns;
                x.products = products;
                x.sums_heads = by_head && other;
                x.tiles = !by_head && other ? columns : 1;  // of one C, or of as many
                keys.insert(dsd_key(x, by_head, Device::cuda(device)));
                ++extents;
              }
      if (x.transposed) break;
    }
  CHECK(keys.size() == extents);
}

TEST_CASE("schedule: the items of sdd cover every column of every strip once") {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const int block = 16 << random() % 4, side = warpgroup_sdd_tile(block, {}).sdd_rows(block);
    const int heads = 1 + static_cast<int>(random() % 3), rows = static_cast<int>(random() % 30);
    const int cols = static_cast<int>(random() % 150);
    const auto kept = static_cast<unsigned>(1 + random() % 10);
    const LayoutPtr layout = test::uneven_layout(random, heads, rows, cols, block, kept);
    const BlockSparseStrips strips(*layout, false, side, Device::cpu());
    for (const SddForm form : {SddForm{}, {.narrow = true}}) {
      const SddItems items = list_sdd(strips, block, form);
      const WarpgroupTile tile = warpgroup_sdd_tile(block, form);
      REQUIRE(items.shares.size() == items.costs.size());
      std::vector<int> taken(static_cast<size_t>(strips.offsets.back()));
      int wrong = 0;
      for (size_t item = 0; item < items.costs.size(); ++item) {
        const device::SddShare& share = items.shares[item];
        wrong += items.costs[item] != sdd_cycles((side + share.count) * block, tile.cols);
        wrong += share.count < 1 || share.count > tile.sdd_cols(block) || share.halved != 0;
        wrong += share.first < strips.offsets[static_cast<size_t>(share.strip)];
        wrong += share.first + share.count > strips.offsets[static_cast<size_t>(share.strip) + 1];
        for (int c = 0; c < share.count; ++c) ++taken.at(static_cast<size_t>(share.first + c));
      }
      CHECK(wrong == 0);
      CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
    }
  }
}

TEST_CASE("schedule: items of blocks of 128 that clusters cut by the depth are all there once") {
  std::mt19937 random(17);
  for (int i = 0; i < 100; ++i) {
    const int heads = 1 + static_cast<int>(random() % 2), rows = static_cast<int>(random() % 20);
    const int cols = static_cast<int>(random() % 40);
    std::vector<BlockIndex> blocks;
    for (int head = 0; head < heads; ++head)
      for (int row = 0; row < rows; ++row)
        for (int col = 0; col < cols; ++col)
          if (random() % 3 == 0) blocks.push_back({head, row, col});
    const LayoutPtr layout = Layout::from_blocks(heads, rows, cols, 128, blocks);
    const BlockSparseStrips strips(*layout, false, 1, Device::cpu());
    for (const int64_t whole : {0, 3, 1000})
      for (const bool narrow : {false, true}) {
        const SddItems items = list_sdd_by_depth(strips, 64, whole, narrow);
        REQUIRE(items.shares.size() == 2 * items.costs.size());
        CHECK(std::is_sorted(items.costs.rbegin(), items.costs.rend()));
        std::vector<int> taken(static_cast<size_t>(strips.offsets.back()));
        int wrong = 0, whole_ones = 0;
        for (size_t item = 0; item < items.costs.size(); ++item) {
          const device::SddShare &x = items.shares[2 * item], &y = items.shares[2 * item + 1];
          wrong += x.halved != y.halved || items.costs[item] <= 0;
          wrong +=
              x.halved != 0 && (x.strip != y.strip || x.first != y.first || x.count != y.count);
          wrong += x.halved == 0 && (x.count != 2 || y.count != 2);
          wrong += x.halved != 0 && narrow && x.count != 1;
          whole_ones += x.halved == 0;
          for (const device::SddShare* share : {&x, &y}) {
            if (share == &y && x.halved != 0) continue;
            wrong += share->count < 1;
            wrong += share->first < strips.offsets[static_cast<size_t>(share->strip)];
            wrong +=
                share->first + share->count > strips.offsets[static_cast<size_t>(share->strip) + 1];
            for (int c = 0; c < share->count; ++c)
              ++taken.at(static_cast<size_t>(share->first + c));
          }
        }
        CHECK(wrong == 0);
        CHECK(whole_ones <= whole);
        CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
      }
  }
}

TEST_CASE("schedule: sdd of f32 has every block once in the shares of its items") {
  std::mt19937 random(23);
  for (int i = 0; i < 60; ++i) {
    const int block = 16 << random() % 2, heads = 1 + static_cast<int>(random() % 3);
    const int rows = 1 + static_cast<int>(random() % 60),
              cols = 1 + static_cast<int>(random() % 60);
    std::vector<BlockIndex> blocks;
    for (int head = 0; head < heads; ++head)
      for (int row = 0; row < rows; ++row)
        for (int col = 0; col < cols; ++col)
          if (random() % 3 == 0) blocks.push_back({head, row, col});
    const LayoutPtr layout = Layout::from_blocks(heads, rows, cols, block, blocks);
    const Tf32SddExtent extent{.batch = 1 + static_cast<int>(random() % 3),
                               .steps = 1 + static_cast<int>(random() % 60),
                               .split = random() % 2 != 0,
                               .b_along_k = random() % 2 != 0};
    const Tf32SddPlan plan = plan_tf32_sdd(*layout, extent, 132, random() % 2 != 0 ? 3e12 : 3e9);
    const Tf32Tile tile = tf32_gathered_tile(extent.split);
    const std::vector<device::SddShare>& shares = plan.strips.shares;
    REQUIRE(shares.size() % static_cast<size_t>(tile.shares()) == 0);
    const auto items =
        shares.size() / static_cast<size_t>(tile.shares()) * static_cast<size_t>(extent.batch);
    if (!plan.split.pieces.empty())
      check_pieces(plan.split, std::vector<int32_t>(items, static_cast<int32_t>(extent.steps)));
    CHECK(plan.strips.strip_rows * block == tile.n);
    std::vector<int> taken(static_cast<size_t>(layout->nnz()));
    int wrong = 0;
    for (const device::SddShare& share : shares) {
      wrong += share.count < 0 || share.count * block > tile.gathered_columns();
      wrong += static_cast<size_t>(share.strip + 1) * static_cast<size_t>(plan.strips.strip_rows) >
               plan.strips.rows.size();
      for (int c = 0; c < share.count * plan.strips.strip_rows; ++c) {
        const int number =
            plan.strips.blocks.at(static_cast<size_t>(share.first * plan.strips.strip_rows + c));
        if (number >= 0) ++taken.at(static_cast<size_t>(number));
      }
    }
    CHECK(wrong == 0);
    CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
    CHECK((plan.seconds > 0) == (layout->nnz() > 0));
  }
}

TEST_CASE("schedule: items of sdd are taken in groups of columns, small ones last") {
  // 64 strips of 40 columns of blocks, but every fourth of one.
  std::vector<BlockIndex> blocks;
  for (int row = 0; row < 64; ++row)
    for (int col = 0; col < (row % 4 == 0 ? 1 : 40); ++col) blocks.push_back({0, row, col});
  const LayoutPtr layout = Layout::from_blocks(1, 64, 40, 64, blocks);
  const BlockSparseStrips strips(*layout, false, 1, Device::cpu());
  const SddItems listed = list_sdd(strips, 64, {.narrow = true, .ctas = 1});
  REQUIRE(listed.costs.size() == 16 + 48 * 10);
  const SddItems items = order_sdd(listed, 64, 40 * 64, 30);
  REQUIRE(items.costs.size() == listed.costs.size());
  // Slices of 330 columns on the average; 2.4 of them of 12 strips are as many columns as rows.
  const auto most = *std::max_element(items.costs.begin(), items.costs.end());
  int group = 0;
  for (size_t i = 0; i < items.costs.size(); ++i) {
    CHECK((items.costs[i] > most / 2) == (i < 48 * 10));
    if (i >= 48 * 10) continue;
    const int own = items.slices[i][0] * 3 / 10;
    CHECK(own >= group);
    group = own;
  }
  CHECK(group == 2);
}

TEST_CASE("schedule: strips made on the device are those made on the host, bit for bit") {
  const Device device = test::test_device();
  std::mt19937 random(9);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  for (int i = 0; i < 200; ++i) {
    const int heads = 1 + below(3), rows = below(70), cols = below(i % 10 == 0 ? 20000 : 700);
    std::set<std::array<int, 3>> chosen;
    if (rows * cols > 0)
      for (int b = below(3 * (rows + cols)); b > 0; --b)
        chosen.insert({below(heads), b % 3 == 0 ? 0 : below(rows), below(cols)});
    std::vector<BlockIndex> blocks;
    for (const auto& [head, row, col] : chosen) blocks.push_back({head, row, col});
    const LayoutPtr layout = Layout::from_blocks(heads, rows, cols, 16, blocks);
    for (const bool transposed : {false, true}) {
      const int side = 1 << below(4);
      const BlockSparseStrips host(*layout, transposed, side, Device::cpu());
      const BlockSparseStrips made(*layout, transposed, side, device);
      CHECK(test::same_bits(made.lists, host.lists));
      CHECK(test::same_bits(made.columns, host.columns));
    }
  }
}

TEST_CASE("schedule: few and deep rows of unequal length are cut, or tests of parts have none") {
  std::mt19937 random(23);
  for (const int block : {16, 32, 64, 128}) {
    const test::Mask mask = test::unequal_rows(256 / block, 4096 / block, block, random);
    const BlockSparseStrips strips(*mask.layout(), false, 128 / block, Device::cpu());
    const SplitCosts costs = split_costs(warpgroup_dsd_step(block, 128), 128 * 128 * sizeof(float));
    const DsdExtent extent{.cols = 128, .columns = 1, .products = 1};
    const std::vector<int32_t> lengths = dsd_items(strips, block, extent);
    const WorkPieces work = split_work(lengths, 132, costs);
    CAPTURE(block);
    check_pieces(work, lengths);
    CHECK(work.slots > 0);
  }
}

TEST_CASE("schedule: lists are asked for to their last line, and no more of them than there are") {
  const Tensor one = Tensor::empty({33}, i32), none, empty = Tensor::empty({0}, i32);
  const Tensor two = Tensor::empty({64}, i32);
  const device::ListMemory lists = list_memory(none, one, two);
  CHECK(lists.from[0] == one.data());
  CHECK(lists.lines[0] == 2);
  CHECK(lists.from[1] == two.data());
  CHECK(lists.lines[1] == 2);
  CHECK(lists.lines[2] == 0);
  const device::ListMemory nothing = list_memory(empty, none);
  for (const int lines : nothing.lines) CHECK(lines == 0);
}
