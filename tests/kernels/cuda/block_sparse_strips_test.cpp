#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tiles.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

using namespace bs;
using namespace bs::cuda;

namespace {

/// A layout of rows of unequal length, some of them empty.
LayoutPtr draw(std::mt19937& random, int block) {
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  const int heads = 1 + below(3), rows = below(150), cols = below(200), kept = 1 + below(20);
  std::vector<BlockIndex> blocks;
  for (int head = 0; head < heads; ++head)
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        if ((row + head) % 11 != 3 && below(row % 7 == 0 ? 1 + kept / 3 : kept) == 0)
          blocks.push_back({head, row, col});
  return Layout::from_blocks(heads, rows, cols, block, blocks);
}

/// For each head and row, or column where `transposed`, its blocks' places and numbers.
std::vector<std::map<int, int>> lines_of(const Layout& layout, bool transposed) {
  const LayoutView v = layout.view(Device::cpu());
  const int rows = transposed ? v.cols : v.rows;
  std::vector<std::map<int, int>> lines(static_cast<size_t>(v.heads * rows));
  for (int i = 0; i < layout.nnz(); ++i) {
    const int row = transposed ? v.col_of[i] : v.row_of[i];
    lines[static_cast<size_t>(v.head_of[i] * rows + row)][transposed ? v.row_of[i] : v.col_of[i]] =
        i;
  }
  return lines;
}

}  // namespace

TEST_CASE("alike rows: every row is in one strip, and strips are as long as their unions") {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const int block = 16 << random() % 3, side = WarpgroupTile::dsd_rows(block);
    const LayoutPtr layout = draw(random, block);
    for (const bool transposed : {false, true}) {
      const int rows = transposed ? layout->cols() : layout->rows(), heads = layout->heads();
      const int strips = (rows + side - 1) / side;
      const std::vector<std::map<int, int>> lines = lines_of(*layout, transposed);
      const auto check_lengths = [&](const Strips& made, const auto& row_of) {
        REQUIRE(made.count == strips);
        int wrong = 0;
        for (int strip = 0; strip < heads * strips; ++strip) {
          std::set<int> columns;
          for (int r = 0; r < side; ++r) {
            const int row = row_of(strip, r);
            if (row >= rows) continue;
            for (const auto& [col, number] :
                 lines[static_cast<size_t>(strip / strips * rows + row)])
              columns.insert(col);
          }
          wrong += made.length(strip) != static_cast<int>(columns.size());
        }
        CHECK(wrong == 0);
      };
      check_lengths(make_strips(*layout, {.transposed = transposed, .side = side}),
                    [&](int strip, int r) { return strip % strips * side + r; });
      const std::vector<int32_t> alike = alike_rows(*layout, transposed, side);
      REQUIRE(alike.size() == static_cast<size_t>(heads * strips * side));
      check_lengths(
          make_strips(*layout, {.transposed = transposed, .side = side, .gathered = true}),
          [&](int strip, int r) { return alike[static_cast<size_t>(strip * side + r)]; });
      std::vector<int> taken(static_cast<size_t>(heads * rows));
      size_t missing = 0, wrong = 0;
      for (size_t at = 0; at < alike.size(); ++at) {
        const int row = alike[at], head = static_cast<int>(at) / (strips * side);
        wrong += row < 0 || row > rows;
        missing += row == rows;
        if (row < rows) ++taken.at(static_cast<size_t>(head * rows + row));
      }
      CHECK(wrong == 0);
      CHECK(missing == static_cast<size_t>(heads * (strips * side - rows)));
      CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
    }
  }
}

namespace {

/// Whether dsd gathers the rows of a layout for so many columns.
bool gathers(const LayoutPtr& layout, int64_t n, bool transposed = false,
             bool c_by_columns = false) {
  const DsdShape shape{
      .transposed = transposed, .n = n, .batch = layout->heads(), .c_by_columns = c_by_columns};
  return plan_dsd(*layout, shape, Gpu{}, {}).strips.gathered;
}

}  // namespace

TEST_CASE("alike rows: they come together wherever they lie") {
  for (const int block : {16, 32, 64}) {
    CAPTURE(block);
    const int side = WarpgroupTile::dsd_rows(block), kinds = 8;
    const test::Mask mask = test::alike_rows(2, kinds * 5 * side, kinds * 3 * side, kinds, block);
    for (const bool transposed : {false, true}) {
      // Strips of one kind each, which have an eighth of the columns.
      const int rows = transposed ? mask.cols : mask.rows,
                cols = transposed ? mask.rows : mask.cols;
      const Strips strips =
          make_strips(*mask.layout(), {.transposed = transposed, .side = side, .gathered = true});
      CHECK(strips.columns() == int64_t{2} * (rows / side) * (cols / kinds));
      for (const bool c_by_columns : {false, true})
        CHECK(gathers(mask.layout(), 2048, transposed, c_by_columns));
    }
  }
  // Rows beyond this many are not compared, but there all the same.
  const test::Mask tall = test::alike_rows(1, 2100, 16, 8, 16);
  const Strips strips = make_strips(*tall.layout(), {.side = 8, .gathered = true});
  CHECK(strips.columns() < make_strips(*tall.layout(), {.side = 8}).columns() / 4);
  std::vector<int32_t> rows = strips.rows;
  std::sort(rows.begin(), rows.end());
  for (size_t i = 0; i < rows.size(); ++i)
    REQUIRE(rows[i] == static_cast<int32_t>(std::min<size_t>(i, 2100)));
}

TEST_CASE("alike rows: neighbours stay where others would gain too little") {
  // All alike; nothing at all; nothing in common.
  for (const test::Mask& mask : {test::Mask(1, 40, 30, 16, 1), test::Mask(2, 9, 9, 16)})
    CHECK(!gathers(mask.layout(), 2048));
  test::Mask diagonal(1, 64, 64, 32);
  for (int i = 0; i < 64; ++i) diagonal.at(0, i, i) = 1;
  CHECK(!gathers(diagonal.layout(), 2048));
  // Any column less is worth it; but not in lines as short as a block.
  test::Mask few(1, 64, 200, 16);
  for (int row = 0; row < 64; ++row)
    for (int col = 0; col < 199; ++col) few.at(0, row, col) = 1;
  few.at(0, 3, 199) = few.at(0, 60, 199) = 1;  // two strips of neighbours have it, one of alike
  CHECK(gathers(few.layout(), 2048));
  CHECK(!gathers(few.layout(), 2048, false, true));
}

namespace {

/// Whether strips may list a union's columns like this: sorted; or two at a time, pairs of which
/// both are there together, and these and the others sorted among themselves and mixed evenly.
bool in_order(const std::vector<int>& listed, bool pairs) {
  if (!pairs) return std::is_sorted(listed.begin(), listed.end());
  const std::set<int> columns(listed.begin(), listed.end());
  const auto whole = [&](int col) { return columns.contains(col ^ 1); };
  std::vector<int> of_pairs, others;
  const int twos = (static_cast<int>(listed.size()) + 1) / 2;
  int all = 0, before = 0;
  for (const int col : columns) all += whole(col);
  for (size_t i = 0; i < listed.size(); ++i) {
    if (i % 2 == 1 && whole(listed[i]) && listed[i] != listed[i - 1] + 1) return false;
    (whole(listed[i]) ? of_pairs : others).push_back(listed[i]);
    if (i % 2 == 1 || !whole(listed[i])) continue;
    // Of `all` / 2 pairs, this many come among so many twos; no even mixture is off by a whole one.
    const double expected = static_cast<double>(i / 2) * (all / 2) / twos;
    if (std::abs(before++ - expected) > 1) return false;
  }
  return std::is_sorted(of_pairs.begin(), of_pairs.end()) &&
         std::is_sorted(others.begin(), others.end());
}

/// Checks every entry of strips of `side` block rows; returns how many pairs kernels find.
int check_strips(const Layout& layout, bool transposed, int side, bool pairs, const Strips& strips,
                 const DeviceStrips& host) {
  const int rows = transposed ? layout.cols() : layout.rows(), count = strips.count;
  const std::vector<std::map<int, int>> lines = lines_of(layout, transposed);
  int found = 0, wrong = 0, whole = 0;
  for (int strip = 0; strip < layout.heads() * count; ++strip) {
    std::set<int> columns;
    std::vector<const std::map<int, int>*> own(static_cast<size_t>(side));
    for (int r = 0; r < side; ++r) {
      const int row = host.gathered ? host.list.rows[strip * side + r] : strip % count * side + r;
      if (row >= rows) continue;
      own[static_cast<size_t>(r)] = &lines[static_cast<size_t>(strip / count * rows + row)];
      for (const auto& [col, number] : *own[static_cast<size_t>(r)]) columns.insert(col);
    }
    const int begin = host.list.offsets[strip];
    REQUIRE(strips.length(strip) == static_cast<int>(columns.size()));
    const std::vector<int> listed(host.list.cols + begin,
                                  host.list.cols + host.list.offsets[strip + 1]);
    wrong += std::set<int>(listed.begin(), listed.end()) != columns;
    wrong += !in_order(listed, pairs);
    for (size_t i = 0; i < listed.size(); ++i) {
      for (int r = 0; r < side; ++r) {
        const auto* const line = own[static_cast<size_t>(r)];
        const int number = host.list.blocks[(begin + static_cast<int64_t>(i)) * side + r];
        wrong += number != (line && line->contains(listed[i]) ? line->at(listed[i]) : -1);
        found += number >= 0;
      }
      whole += i % 2 == 1 && listed[i] % 2 == 1 && listed[i - 1] == listed[i] - 1;
    }
  }
  CHECK(wrong == 0);
  CHECK(found == layout.nnz());
  return whole;
}

}  // namespace

TEST_CASE("strips: strips list what their rows keep, made on host and device") {
  const Device device = test::test_device();
  std::mt19937 random(5);
  int whole = 0;
  for (int i = 0; i < 200; ++i) {
    const int block = 16 << random() % 3, side = WarpgroupTile::dsd_rows(block);
    const LayoutPtr layout = draw(random, block);
    const bool transposed = i % 2 != 0, pairs = i / 2 % 2 != 0, gathered = i / 4 % 4 != 0;
    CAPTURE(i);
    const Strips strips = *strips_of(*layout, {transposed, side, gathered, pairs});
    const DeviceStrips host(*layout, strips, Device::cpu());
    const int found = check_strips(*layout, transposed, side, pairs, strips, host);
    if (pairs) whole += found;
    const DeviceStrips made(*layout, strips, device);
    CHECK(test::same_bits(made.lists, host.lists));
    CHECK(test::same_bits(made.columns, host.columns));
  }
  CHECK(whole > 1000);
}

TEST_CASE("strips: pairs of columns stay together, whatever words of bits they are in") {
  const Device device = test::test_device();
  std::mt19937 random(7);
  for (const int cols : {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 20000}) {
    CAPTURE(cols);
    test::Mask mask(1, 6, cols, 32);
    for (int col = 0; col < cols; ++col)
      for (int row = 0; row < 4; ++row) mask.at(0, row, col) = random() % 5 == 0;
    mask.at(0, 1, cols - 1) = mask.at(0, 5, 0) = 1;  // and all columns, or one, of the second strip
    for (int col = 0; col < cols && cols % 2 == 0; ++col) mask.at(0, 4, col) = 1;
    const LayoutPtr layout = mask.layout();
    const Strips strips = *strips_of(*layout, {.side = 4, .pairs = true});
    const DeviceStrips host(*layout, strips, Device::cpu());
    CHECK(check_strips(*layout, false, 4, true, strips, host) >= (cols % 2 == 0 ? cols / 2 : 0));
    const DeviceStrips made(*layout, strips, device);
    CHECK(test::same_bits(made.columns, host.columns));
  }
}
