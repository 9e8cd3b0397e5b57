#include <bs/kernels/cuda/block_sparse_schedule.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>

using namespace bs;
using namespace bs::cuda;

namespace {

std::vector<int32_t> descending(std::vector<int32_t> lengths) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>{});
  return lengths;
}

/// Every step of every item is in one piece, and parts are what the kernels expect of them.
void check_pieces(const WorkPieces& work, const std::vector<int32_t>& lengths) {
  std::map<int, std::vector<device::WorkPiece>> of_item;
  for (const device::WorkPiece& piece : work.pieces) {
    std::vector<device::WorkPiece>& before = of_item[piece.item];
    CHECK(piece.part == static_cast<int>(before.size()));  // in the order of the list
    before.push_back(piece);
  }
  CHECK(of_item.size() == lengths.size());
  std::set<int> slots;
  for (auto& [item, parts] : of_item) {
    std::sort(parts.begin(), parts.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    int at = 0;
    for (const device::WorkPiece& piece : parts) {
      CHECK(piece.begin == at);
      CHECK(piece.parts == static_cast<int>(parts.size()));
      CHECK(piece.slot == parts[0].slot);
      if (piece.part + 1 < piece.parts) CHECK(slots.insert(piece.slot + piece.part).second);
      at = piece.end;
    }
    CHECK(at == lengths[static_cast<size_t>(item)]);
  }
  CHECK(static_cast<int>(slots.size()) == work.slots);
  CHECK((slots.empty() || *slots.rbegin() == work.slots - 1));
}

}  // namespace

TEST_CASE("schedule: equal items that fill half a round are halved, all at the same step") {
  const std::vector<int32_t> lengths(59, 64);
  const WorkPieces work = split_work(lengths, 132);
  check_pieces(work, lengths);
  CHECK(work.slots == 59);
  for (const device::WorkPiece& piece : work.pieces) CHECK(piece.end - piece.begin == 32);
}

TEST_CASE("schedule: of items that just miss whole rounds those left over are cut") {
  const std::vector<int32_t> lengths(170, 64);
  const WorkPieces work = split_work(lengths, 132);
  check_pieces(work, lengths);
  int whole = 0;
  for (const device::WorkPiece& piece : work.pieces) whole += piece.parts == 1;
  CHECK(whole == 132);
  CHECK(work.time < 2 * 66 * 19 / 20);
}

TEST_CASE("schedule: few items are spread over all workers, and one among many is cut") {
  for (const int items : {1, 2, 7, 30, 60}) {
    CAPTURE(items);
    const std::vector<int32_t> lengths(static_cast<size_t>(items), 256);
    const WorkPieces work = split_work(lengths, 132);
    check_pieces(work, lengths);
    CHECK(work.time < 258);
    CHECK(work.slots > 0);
  }
  std::vector<int32_t> lengths(264, 4);
  lengths[0] = 512;
  const WorkPieces work = split_work(lengths, 132);
  check_pieces(work, lengths);
  CHECK(work.time < 512 / 3);
}

TEST_CASE("schedule: items that end together are left whole") {
  for (const auto& lengths :
       {std::vector<int32_t>(132, 64), std::vector<int32_t>(264, 8), std::vector<int32_t>(50, 0),
        std::vector<int32_t>(50, 3), std::vector<int32_t>{}}) {
    const WorkPieces work = split_work(lengths, 132);
    CHECK(work.pieces.empty());
    CHECK(work.slots == 0);
  }
}

TEST_CASE("schedule: pieces cover random items, and never take longer than whole ones") {
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    const int workers = 1 + static_cast<int>(random() % 140);
    std::vector<int32_t> lengths(1 + random() % 400);
    const unsigned most = 1U << random() % 9;
    for (int32_t& length : lengths) {
      length = static_cast<int32_t>(random() % most);
      if (random() % 16 == 0) length *= 16;  // now and then a long one
    }
    lengths = descending(lengths);
    const WorkPieces work = split_work(lengths, workers);
    if (!work.pieces.empty()) check_pieces(work, lengths);
    const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    CHECK(work.time >= total / workers);
    CHECK(work.time <= total + static_cast<int64_t>(2 * lengths.size()));
  }
}

TEST_CASE("schedule: columns come in groups that the cache holds, long strips before them") {
  const std::vector<int32_t> even(64, 32);
  // All that fits, but for three items for each worker at the end.
  const device::WorkOrder one = order_work(even, 16, 16, 132);
  CHECK(one.groups == 2);
  const device::WorkOrder few = order_work(even, 7, 16, 132);
  CHECK(few.first == 64);
  CHECK(few.groups == 1);
  // 7 columns are three items for each of 132: the last group has them; the others what fits.
  const device::WorkOrder groups = order_work(even, 32, 6, 132);
  CHECK(groups.first == 0);
  CHECK(groups.group == 6);
  CHECK(groups.groups == 5);  // 4 of 6 and 8
  CHECK(order_work(even, 8, 6, 132).group == 1);
  // One strip as long as all others.
  std::vector<int32_t> skewed(64, 4);
  skewed[0] = 256;
  CHECK(order_work(skewed, 32, 6, 132).first == 1);
}

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
        for (int e = strips.list.offsets[strip]; e < strips.list.offsets[strip + 1]; ++e) {
          int present = 0;
          for (int r = 0; r < side; ++r) {
            const int block = strips.list.blocks[int64_t{e} * side + r];
            const auto it = expected.find({head, first + r, strips.list.cols[e]});
            wrong += block != (it == expected.end() ? -1 : it->second);
            present += block >= 0;
          }
          wrong += present == 0;
          wrong += e > strips.list.offsets[strip] && strips.list.cols[e] <= strips.list.cols[e - 1];
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

TEST_CASE("schedule: strips made on the device are those made on the host, bit for bit") {
  const Device device = test::test_device();
  const auto same = [](const Tensor& x, const Tensor& y) {
    const Tensor a = x.to(Device::cpu()), b = y.to(Device::cpu());
    return a.shape() == b.shape() &&
           (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
  };
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
      CHECK(same(made.lists, host.lists));
      CHECK(same(made.columns, host.columns));
    }
  }
}
