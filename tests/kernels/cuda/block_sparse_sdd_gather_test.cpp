#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_gather.h>
#include <bs/lib/patterns.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/uneven_layout.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

LayoutPtr random_layout(int rows, int cols, int block, double density) {
  return patterns::random({.rows = rows, .cols = cols, .block = block}, {.density = density});
}

}  // namespace

TEST_CASE("sdd: gathered rows and columns of sdd have every block once") {
  std::mt19937 random(19);
  for (int i = 0; i < 120; ++i) {
    const int block = 16 << random() % 3, heads = 1 + static_cast<int>(random() % 3);
    const int rows = static_cast<int>(random() % 400), cols = static_cast<int>(random() % 150);
    const auto kept = static_cast<unsigned>(1 + random() % 20);
    const LayoutPtr layout = test::uneven_layout(random, heads, rows, cols, block, kept);
    const LayoutView view = layout->view(Device::cpu());
    const bool transposed = random() % 2 != 0;
    const int height = random() % 2 != 0 ? 64 : 128, width = random() % 2 != 0 ? 128 : 256;
    const int window = random() % 2 != 0 ? 1 + static_cast<int>(random() % 3000) : widest_window;
    const GatheredStrips made = gather_sdd(*layout, transposed, height, width, window)->list();
    CHECK(made.strip_rows * block == height);
    const auto high = static_cast<size_t>(made.strip_rows);
    const size_t items = made.ranges.size();
    REQUIRE(made.rows.size() == items * high);
    REQUIRE(made.blocks.size() == made.cols.size() * high);
    std::vector<int> taken(static_cast<size_t>(layout->nnz()));
    const int of_head = transposed ? cols : rows;
    size_t entry = 0;
    int wrong = 0;
    for (size_t item = 0; item < items; ++item) {
      const device::SddRange& range = made.ranges[item];
      wrong += range.strip != static_cast<int>(item) || range.first != static_cast<int>(entry);
      wrong += range.count < 1 || range.count > width / block;
      for (int c = 0; c < range.count; ++c, ++entry)
        for (size_t r = 0; r < high; ++r) {
          const int row = made.rows[item * high + r], number = made.blocks[entry * high + r];
          wrong += row / of_head != made.rows[item * high] / of_head;
          if (number < 0) continue;
          const auto n = static_cast<size_t>(number);
          ++taken.at(n);
          wrong += view.head_of[n] != row / of_head;
          wrong += (transposed ? view.col_of : view.row_of)[n] != row % of_head;
          wrong += (transposed ? view.row_of : view.col_of)[n] != made.cols[entry];
        }
    }
    CHECK(wrong == 0);
    CHECK(entry == made.cols.size());
    CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
  }
}

TEST_CASE("sdd: gathering is given up only where the limit can't be kept") {
  std::mt19937 random(23);
  int kept = 0, given_up = 0;
  for (int i = 0; i < 200; ++i) {
    const int block = 16 << random() % 3, width = random() % 2 != 0 ? 128 : 256;
    const LayoutPtr layout =
        test::uneven_layout(random, 1 + static_cast<int>(random() % 2), 150, 150, block,
                            1 + static_cast<unsigned>(random() % 9));
    const GatheredStrips all = gather_sdd(*layout, false, 128, width, 2048)->list();
    GatherLimit limit{.first = 128. + static_cast<double>(random() % 128),
                      .column = static_cast<double>(block)};
    double lines = 0;
    for (const device::SddRange& range : all.ranges) lines += limit.of(range.count);
    limit.most = lines * (.5 + .01 * static_cast<double>(random() % 100));
    CAPTURE(i);
    const std::optional<GatheredItems> within = gather_sdd(*layout, false, 128, width, 2048, limit);
    CHECK(within.has_value() == (lines <= limit.most));  // the last item tells at the latest
    ++(within ? kept : given_up);
    if (!within) continue;
    const GatheredStrips listed = within->list();
    CHECK(listed.rows == all.rows);
    CHECK(listed.cols == all.cols);
    CHECK(listed.blocks == all.blocks);
  }
  CHECK(kept > 40);
  CHECK(given_up > 40);
}

TEST_CASE("sdd: any number of threads gathers the same items") {
  const int before = threads();
  for (const int block : {16, 32, 64}) {
    CAPTURE(block);
    // Several windows, and more blocks than one thread takes by itself.
    const LayoutPtr layout =
        random_layout(8192 / block, 8192 / block, block, block == 64 ? .7 : .2);
    std::vector<GatheredStrips> made;
    for (const int count : {1, 2, 5}) {
      set_threads(count);
      made.push_back(gather_sdd(*layout, block == 32, 128, 256, 2048)->list());
    }
    for (const GatheredStrips& other : made) {
      CHECK(other.rows == made[0].rows);
      CHECK(other.cols == made[0].cols);
      CHECK(other.blocks == made[0].blocks);
    }
  }
  set_threads(before);
}

TEST_CASE("sdd: gathered rows of sdd are those that are alike") {
  // Rows of four kinds, in no order, which have no column in common: whole items of each.
  for (const int block : {16, 32, 64}) {
    CAPTURE(block);
    const int kinds = 4, rows = kinds * 128 / block, cols = kinds * 256 / block;
    std::vector<BlockIndex> blocks;
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        if (row * 5 % kinds == col % kinds) blocks.push_back({0, row, col});
    const LayoutPtr layout = Layout::from_blocks(1, rows, cols, block, blocks);
    const GatheredStrips made = gather_sdd(*layout, false, 128, 256)->list();
    CHECK(made.ranges.size() == kinds);
    CHECK(std::count(made.blocks.begin(), made.blocks.end(), -1) == 0);
  }
}

TEST_CASE("sdd: gathered rows leave less of an item empty than neighbours do") {
  for (const int block : {16, 32, 64})
    for (const double density : {.02, .1, .3, .4}) {
      CAPTURE(block);
      CAPTURE(density);
      const LayoutPtr layout = random_layout(4096 / block, 4096 / block, block, density);
      for (const bool narrow : {false, true}) {
        const GatheredStrips made = gather_sdd(*layout, false, 128, narrow ? 128 : 256)->list();
        const double blocks = static_cast<double>(layout->nnz());
        const double full = blocks / static_cast<double>(made.blocks.size());
        // A strip of random rows has a column unless all of them lack it.
        const double neighbours = density / (1 - std::pow(1 - density, made.strip_rows));
        const double fuller = density < .1 ? 1.15 : narrow ? 1.4 : 1.25;
        CHECK(full > fuller * neighbours);
        CHECK(full <= 1);
      }
    }
}

TEST_CASE("sdd: gathered rows and columns of an item are of one window") {
  const LayoutPtr layout = random_layout(8192 / 32, 6144 / 32, 32, .2);
  for (const bool transposed : {false, true}) {
    const GatheredStrips made = gather_sdd(*layout, transposed, 128, 256, 2048)->list();
    // Windows come row by row of them.
    std::vector<std::pair<int, int>> windows;
    int apart = 0;
    for (const device::SddRange& range : made.ranges) {
      const auto row = static_cast<size_t>(range.strip * made.strip_rows);
      const auto col = static_cast<size_t>(range.first);
      windows.emplace_back(made.rows[row] * 32 / (transposed ? 3072 : 4096),
                           made.cols[col] * 32 / 2048);
      for (size_t i = 0; i < static_cast<size_t>(made.strip_rows); ++i)
        apart += made.rows[row + i] * 32 / (transposed ? 3072 : 4096) != windows.back().first;
      for (size_t i = 0; i < static_cast<size_t>(range.count); ++i)
        apart += made.cols[col + i] * 32 / 2048 != windows.back().second;
    }
    CHECK(apart == 0);
    CHECK(std::is_sorted(windows.begin(), windows.end()));
    CHECK(std::set(windows.begin(), windows.end()).size() == (transposed ? 8 : 6));
  }
}

TEST_CASE("sdd: windows are narrow where memory would be what items wait for") {
  const Gpu h100, h200{.memory_rate = 4900};
  constexpr double stage = 770;
  for (const int block : {16, 32, 64}) {
    CAPTURE(block);
    CHECK(sdd_window(4096, 4096, block, stage, h100) == widest_window);
    CHECK(sdd_window(8192, 4096, block, stage, h100) == widest_window);
    CHECK(sdd_window(2048, 6144, block, stage, h200) == widest_window);
  }
  CHECK(sdd_window(8192, 8192, 32, stage, h100) == 2048);
  CHECK(sdd_window(8192, 8192, 32, stage, h200) == widest_window);
  // Two windows of blocks of 16 have 8192 columns at most.
  CHECK(sdd_window(8192, 65536, 16, stage, h200) == widest_window);
  CHECK(sdd_window(8192, 65536, 16, stage, h100) == 2048);
  CHECK(sdd_window(8192, 65536, 64, stage, h200) == 2048);
  // What takes longer by itself may read more.
  CHECK(sdd_window(8192, 8192, 64, 2 * stage, h100) == widest_window);
}

TEST_CASE("sdd: what a kernel reads of its items lies in one piece") {
  const LayoutPtr layout = random_layout(40, 30, 32, .2);
  const GatheredStrips made = gather_sdd(*layout, false, 128, 256)->list();
  const DeviceRanges ranges(made.ranges, made, Device::cpu());
  const device::StripList list = ranges.gathered(layout->rows());
  const auto same = [](const auto& want, const auto* got) {
    return std::equal(want.begin(), want.end(), got);
  };
  CHECK(same(made.rows, list.rows));
  CHECK(same(made.cols, list.cols));
  CHECK(same(made.blocks, list.blocks));
  CHECK(list.strips == 40);
  CHECK(std::equal(made.ranges.begin(), made.ranges.end(), ranges.work, [](auto& x, auto& y) {
    return x.strip == y.strip && x.first == y.first && x.count == y.count;
  }));
}
