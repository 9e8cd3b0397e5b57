#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dsd_order.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_operands.h>
#include <bs/lib/patterns.h>
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
      const Strips strips = make_strips(*layout, {.transposed = transposed, .side = side});
      const DeviceStrips made(*layout, strips, Device::cpu());
      const device::StripList& list = made.list;
      const int lines = transposed ? cols : rows;
      REQUIRE(strips.count == (lines + side - 1) / side);
      std::map<std::array<int, 3>, int> expected;  // head, line, place along it
      for (size_t b = 0; b < blocks.size(); ++b)
        expected[{blocks[b].head, transposed ? blocks[b].col : blocks[b].row,
                  transposed ? blocks[b].row : blocks[b].col}] = static_cast<int>(b);
      size_t found = 0, wrong = 0;
      for (int strip = 0; strip < heads * strips.count; ++strip) {
        const int head = strip / strips.count, first = strip % strips.count * side;
        const int begin = strips.offsets[static_cast<size_t>(strip)];
        for (int e = begin; e < list.offsets[strip + 1]; ++e) {
          int present = 0;
          for (int r = 0; r < side; ++r) {
            const int block = list.blocks[int64_t{e} * side + r];
            const auto it = expected.find({head, first + r, list.cols[e]});
            wrong += block != (it == expected.end() ? -1 : it->second);
            present += block >= 0;
          }
          wrong += present == 0;
          wrong += e > begin && list.cols[e] <= list.cols[e - 1];
          found += static_cast<size_t>(present);
        }
      }
      CHECK(wrong == 0);
      CHECK(found == blocks.size());
      for (int rank = 0; rank < heads * strips.count; ++rank) {
        CHECK(list.order[rank] / strips.count == rank / strips.count);
        if (rank % strips.count > 0)
          CHECK(strips.length(list.order[rank - 1]) >= strips.length(list.order[rank]));
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
    const Strips strips = make_strips(*layout, {.transposed = transposed, .side = side});
    const int batch = sums_heads ? 1 + below(3) : heads * (1 + below(3)), tiles = 1 + below(3);
    const int others = 1 + below(2);  // products that are summed for each head
    const DsdExtent extent{.cols = 64,
                           .columns = batch * tiles,
                           .products = others * (sums_heads ? heads : 1),
                           .tiles = tiles,
                           .sums_heads = sums_heads};
    const std::vector<int32_t> items = dsd_items(strips, block, extent);
    REQUIRE(items.size() == static_cast<size_t>(strips.count * batch * tiles));
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
      const int strip =
          strips.order[static_cast<size_t>(first * strips.count + rank)] % strips.count;
      int steps = 0;
      for (int h = 0; h < heads; ++h)
        if (sums_heads || h == first) steps += others * stages(h, strip);
      wrong += items[static_cast<size_t>(item)] != steps;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("schedule: the items of sdd cover every column of every strip once") {
  const Gpu gpu;
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const int block = 16 << random() % 4, side = warpgroup_sdd_tile(block, {}).sdd_rows(block);
    const int heads = 1 + static_cast<int>(random() % 3), rows = static_cast<int>(random() % 30);
    const int cols = static_cast<int>(random() % 150);
    const auto kept = static_cast<unsigned>(1 + random() % 10);
    const LayoutPtr layout = test::uneven_layout(random, heads, rows, cols, block, kept);
    const Strips strips = make_strips(*layout, {.side = side});
    for (const SddForm form : {SddForm{}, {.narrow = true}}) {
      const WarpgroupTile tile = warpgroup_sdd_tile(block, form);
      const SddItems items = list_sdd(whole_ranges(strips), side * block, block, tile, gpu);
      REQUIRE(items.ranges.size() == items.costs.size());
      std::vector<int> taken(static_cast<size_t>(strips.offsets.back()));
      int wrong = 0;
      for (size_t item = 0; item < items.costs.size(); ++item) {
        const device::SddRange& range = items.ranges[item];
        wrong += items.costs[item] != sdd_step((side + range.count) * block, tile.cols, gpu);
        wrong += range.count < 1 || range.count > tile.sdd_cols(block);
        wrong += range.first < strips.offsets[static_cast<size_t>(range.strip)];
        wrong += range.first + range.count > strips.offsets[static_cast<size_t>(range.strip) + 1];
        for (int c = 0; c < range.count; ++c) ++taken.at(static_cast<size_t>(range.first + c));
      }
      CHECK(wrong == 0);
      CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
    }
  }
}

TEST_CASE("schedule: sdd of f32 has every block once in the ranges of its items") {
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
    const bool split = random() % 2 != 0;
    const SddShape shape{.factors = split ? Factors::split : Factors::tf32,
                         .k = 1 + static_cast<int>(random() % 2000),
                         .batch = 1 + static_cast<int>(random() % 3),
                         .a_along_k = true,
                         .b_along_k = random() % 2 != 0};
    Gpu gpu;
    if (random() % 2 != 0) gpu.memory_rate = 3;
    const SddPlan plan =
        plan_sdd(*layout, shape, gpu, {.gathered_products = true}, {.dense = false});
    if (layout->nnz() == 0) continue;
    CHECK(plan.path == Path::tf32);
    const Tf32Tile tile = tf32_gathered_tile(split);
    const std::vector<device::SddRange>& ranges = plan.ranges;
    REQUIRE(ranges.size() % static_cast<size_t>(tile.ranges()) == 0);
    const auto items = static_cast<size_t>(plan.items()) * static_cast<size_t>(shape.batch);
    const auto steps = static_cast<int32_t>((shape.k + 31) / 32);
    if (!plan.split.pieces.empty()) check_pieces(plan.split, std::vector<int32_t>(items, steps));
    CHECK(plan.gathered.strip_rows * block == tile.n);
    std::vector<int> taken(static_cast<size_t>(layout->nnz()));
    int wrong = 0;
    for (const device::SddRange& range : ranges) {
      wrong += range.count < 0 || range.count * block > tile.gathered_columns();
      wrong +=
          static_cast<size_t>(range.strip + 1) * static_cast<size_t>(plan.gathered.strip_rows) >
          plan.gathered.rows.size();
      for (int c = 0; c < range.count * plan.gathered.strip_rows; ++c) {
        const int number = plan.gathered.blocks.at(
            static_cast<size_t>(range.first * plan.gathered.strip_rows + c));
        if (number >= 0) ++taken.at(static_cast<size_t>(number));
      }
    }
    CHECK(wrong == 0);
    CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
    CHECK(plan.time > 0);
  }
}

TEST_CASE("schedule: items of sdd are taken in groups of columns") {
  // 64 strips of 40 columns of blocks.
  const LayoutPtr layout = patterns::random({.rows = 64, .cols = 40, .block = 64}, {.density = 1});
  const Strips strips = make_strips(*layout, {});
  const SddItems listed =
      list_sdd(whole_ranges(strips), 64, 64, warpgroup_sdd_tile(64, {.narrow = true}), {});
  REQUIRE(listed.costs.size() == 64 * 10);
  const SddItems items = order_sdd(listed, 64, 40 * 64, 40);
  REQUIRE(items.costs.size() == listed.costs.size());
  // Slices of 256 columns; of three groups each has as many columns as 12 strips have rows.
  int group = 0;
  for (const device::SddRange& range : items.ranges) {
    const int slice = (range.first - strips.offsets[static_cast<size_t>(range.strip)]) / 4;
    const int own = slice * 3 / 10;
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
      const Strips strips = make_strips(*layout, {.transposed = transposed, .side = side});
      const DeviceStrips host(*layout, strips, Device::cpu());
      const DeviceStrips made(*layout, strips, device);
      CHECK(test::same_bits(made.lists, host.lists));
      CHECK(test::same_bits(made.columns, host.columns));
    }
  }
}

TEST_CASE("schedule: few and deep rows of unequal length are cut, or tests of parts have none") {
  std::mt19937 random(23);
  for (const int block : {16, 32, 64, 128}) {
    const test::Mask mask = test::unequal_rows(256 / block, 4096 / block, block, random);
    const Strips strips = make_strips(*mask.layout(), {.side = 128 / block});
    const SplitCosts costs =
        split_costs(warpgroup_dsd_step(128, {}), 128 * 128 * sizeof(float), {});
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
