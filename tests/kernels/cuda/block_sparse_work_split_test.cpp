// How items are shared out among workers, and cut into parts.
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/tests/kernels/cuda/work_pieces.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <utility>

using namespace bs;
using namespace bs::cuda;
using bs::test::check_pieces;

namespace {

std::vector<int32_t> descending(std::vector<int32_t> lengths) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>{});
  return lengths;
}

/// In steps.
constexpr SplitCosts steps{.tile = 2, .store = 2, .load = 5, .list = 6, .most_slots = 500};

/// When the last of `workers` ends, of whom always the first one that is free takes the next piece.
int64_t simulate(const std::vector<int64_t>& costs, int workers) {
  std::multiset<int64_t> free;
  for (int i = 0; i < workers; ++i) free.insert(0);
  for (const int64_t cost : costs) {
    const int64_t end = *free.begin() + cost;
    free.erase(free.begin());
    free.insert(end);
  }
  return *free.rbegin();
}

}  // namespace

TEST_CASE("schedule: equal items that fill half a round are halved, all at the same step") {
  const std::vector<int32_t> lengths(59, 64);
  const WorkPieces work = split_work(lengths, 132, steps);
  check_pieces(work, lengths);
  CHECK(work.slots == 59);
  for (const device::WorkPiece& piece : work.pieces) CHECK(piece.end - piece.begin == 32);
}

TEST_CASE("schedule: equal items that fill a third of a round are cut in three") {
  const std::vector<int32_t> lengths(44, 64);
  const WorkPieces work = split_work(lengths, 132, steps);
  check_pieces(work, lengths);
  CHECK(work.pieces.size() == 132);
  CHECK(work.slots == 88);
}

TEST_CASE("schedule: of items that just miss whole rounds those left over are cut") {
  const std::vector<int32_t> lengths(170, 64);
  const WorkPieces work = split_work(lengths, 132, steps);
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
    const WorkPieces work = split_work(lengths, 132, steps);
    check_pieces(work, lengths);
    CHECK(work.time < 258);
    CHECK(work.slots > 0);
  }
  std::vector<int32_t> lengths(264, 4);
  lengths[0] = 512;
  const WorkPieces work = split_work(lengths, 132, steps);
  check_pieces(work, lengths);
  CHECK(work.time < 512 / 3);
}

TEST_CASE("schedule: items that end together are left whole") {
  for (const auto& lengths :
       {std::vector<int32_t>(132, 64), std::vector<int32_t>(264, 8), std::vector<int32_t>(50, 0),
        std::vector<int32_t>(50, 3), std::vector<int32_t>{}}) {
    const WorkPieces work = split_work(lengths, 132, steps);
    CHECK(work.pieces.empty());
    CHECK(work.slots == 0);
  }
}

TEST_CASE("schedule: items in their order are listed where long ones would begin late") {
  // Rows of Zipf lengths, the longest first, over one tile of columns after the other.
  std::vector<int32_t> lengths;
  for (int column = 0; column < 16; ++column)
    for (int row = 1; row <= 256; ++row) lengths.push_back(std::min(256, 1 + 1100 / row));
  REQUIRE(split_work(lengths, 264, steps).pieces.empty());
  const WorkPieces work = split_in_order(lengths, 264, steps);
  check_pieces(work, lengths);
  std::vector<int64_t> costs, sorted, in_order;
  for (const device::WorkPiece& piece : work.pieces) costs.push_back(piece.end - piece.begin + 2);
  for (const int32_t length : descending(lengths)) sorted.push_back(length + 2);
  for (const int32_t length : lengths) in_order.push_back(length + 2);
  CHECK(work.time == simulate(costs, 264) + 6);
  CHECK(work.time < simulate(in_order, 264) * 19 / 20);
  CHECK(work.time < simulate(sorted, 264) * 107 / 100 + 6);
  // Neighbours among the short ones stay neighbours.
  const auto last = work.pieces.end();
  CHECK(std::is_sorted(last - 200, last,
                       [](const auto& a, const auto& b) { return a.item < b.item; }));

  const WorkPieces even = split_in_order(std::vector<int32_t>(4096, 25), 264, steps);
  CHECK(even.pieces.empty());
  CHECK(even.time == 16 * 27);
  CHECK(split_in_order({}, 264, steps).pieces.empty());
  // Few are cut as ever.
  CHECK(split_in_order(std::vector<int32_t>(59, 64), 132, steps).slots == 59);
  // One among many is cut, and the others stay in their order.
  lengths.assign(4096, 2);
  lengths[3000] = 512;
  const WorkPieces cut = split_in_order(lengths, 264, steps);
  check_pieces(cut, lengths);
  const auto whole = std::find_if(cut.pieces.begin(), cut.pieces.end(),
                                  [](const auto& piece) { return piece.item != 3000; });
  CHECK(whole - cut.pieces.begin() > 1);
  CHECK(cut.pieces.end() - whole == 4095);
  CHECK(std::is_sorted(whole, cut.pieces.end(),
                       [](const auto& a, const auto& b) { return a.item < b.item; }));
}

TEST_CASE("schedule: the longer a step takes, the finer are items cut") {
  std::vector<int32_t> lengths(132, 8);
  lengths[0] = 64;
  int before = 1;
  for (const int step : {100, 500, 2000, 14000}) {
    const WorkPieces work = split_work(lengths, 132, split_costs(step, 32768, {}));
    int parts = 1;
    for (const device::WorkPiece& piece : work.pieces) parts = std::max(parts, piece.parts);
    CHECK(parts >= before);
    before = parts;
  }
  CHECK(before >= 5);
  // Sums of parts are given one memory, however large a part's are, and a launch its counters.
  const auto memory = [](int64_t sums) { return split_costs(700, sums, {}).most_slots * sums; };
  CHECK(memory(128 << 10) == memory(256 << 10));
  CHECK(split_costs(700, 1 << 10, {}).most_slots == 1023);
  CHECK(split_costs(700, 1 << 10, {}, 1).most_slots == 2046);
}

TEST_CASE("schedule: of many items of sdd only those that whole rounds leave over are cut") {
  constexpr int depth = 256;
  for (const int workers : {96, 132})
    for (const int64_t sums : {int64_t{64} << 10, int64_t{128} << 10})
      for (const int step : {700, 850}) {
        CAPTURE(workers);
        CAPTURE(sums);
        CAPTURE(step);
        const SplitCosts of = sdd_split_costs(step, sums, Factors::half, {});
        const auto split = [&](int items) {
          const std::vector<int32_t> lengths(static_cast<size_t>(items), depth);
          WorkPieces work = split_work(lengths, workers, of);
          if (!work.pieces.empty()) check_pieces(work, lengths);
          return work;
        };
        // To cut those of whole rounds too would add nothing but sums.
        for (const int rounds : {1, 3}) {
          const WorkPieces work = split(rounds * workers + workers / 8);
          const auto whole = std::ranges::count(work.pieces, 1, &device::WorkPiece::parts);
          CHECK(whole == rounds * workers);
        }
        CHECK(split(workers - workers / 12).pieces.empty());  // all but a few are at work
        CHECK(split(workers / 4).slots >= workers / 4);
      }
}

TEST_CASE("schedule: the more parts of sdd there are the longer one takes to add, up to a crowd") {
  const SplitCosts of = sdd_split_costs(500, int64_t{64} << 10, Factors::half, {});
  CHECK(of.load_among(0) == of.quiet_load);
  CHECK(of.load_among(of.crowd / 2) > of.quiet_load);
  CHECK(of.load_among(of.crowd / 2) < of.load);
  CHECK(of.load_among(of.crowd) == of.load);
  CHECK(of.load_among(2 * of.crowd) == of.load);
}

TEST_CASE("schedule: rows of dsd that are about even are left whole where steps are short") {
  // 64 rows of a density of .05, over two tiles of columns: 22 us in parts, 18 whole, rounded to
  // TF32; in three products parts do not matter.
  std::vector<int32_t> lengths;
  for (const auto& [length, rows] :
       {std::pair(7, 1), {6, 2}, {5, 12}, {4, 13}, {3, 11}, {2, 18}, {1, 5}, {0, 2}})
    lengths.insert(lengths.end(), static_cast<size_t>(2 * rows), length);
  const Tf32Tile tile = tf32_tile(64, false, false);
  CHECK(split_work(lengths, 132, split_costs(1500, tile.sums(), {})).pieces.empty());
  CHECK(!split_work(lengths, 132, split_costs(2700, tile.sums(), {})).pieces.empty());
  lengths[0] = 40;
  CHECK(split_work(lengths, 132, split_costs(1500, tile.sums(), {})).slots >= 4);
}

TEST_CASE("schedule: parts of broad tiles have to gain a twentieth over whole narrow ones") {
  const auto plan = [](size_t items, int32_t steps, int cols) {
    const SplitCosts of =
        split_costs(warpgroup_dsd_step(cols, {}), int64_t{128} * cols * sizeof(float), {});
    return split_work(std::vector<int32_t>(items, steps), 132, of);
  };
  for (const int32_t steps : {30, 60}) {
    const WorkPieces whole = plan(128, steps, 128), parts = plan(64, steps, 256);
    CAPTURE(steps);
    CHECK(whole.pieces.empty());
    CHECK(parts.slots == 64);
    CHECK(parts.time < whole.time);
    const bool gains = 20 * parts.time < 19 * whole.time;
    CHECK(gains == (steps == 60));
    CHECK((parts.rated_time() < whole.rated_time()) == gains);
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
    if (i % 2 == 0) lengths = descending(lengths);
    // In steps, or in nanoseconds of kernels with steps as long as these.
    const SplitCosts of = i % 3 == 0 ? steps
                                     : split_costs(100 + static_cast<int>(random() % 9000),
                                                   16384 << random() % 4, {});
    const WorkPieces work = split_work(lengths, workers, of);
    if (!work.pieces.empty()) check_pieces(work, lengths);
    CHECK(work.slots <= of.most_slots);
    std::vector<int64_t> costs, whole;
    for (const device::WorkPiece& piece : work.pieces) {
      const int64_t last = of.tile + int64_t{of.load} * (piece.parts - 1);
      const int64_t end = piece.part + 1 == piece.parts ? last : of.store;
      costs.push_back(int64_t{of.step} * (piece.end - piece.begin) + end);
      CHECK(piece.parts <= most_parts);
    }
    for (const int32_t length : descending(lengths))
      whole.push_back(int64_t{of.step} * length + of.tile);
    const int64_t time = simulate(whole, workers);
    CHECK(work.time == (costs.empty() ? time : simulate(costs, workers) + of.list));
    if (!costs.empty()) CHECK(20 * work.time < 19 * time);
    CHECK(work.time <= simulate(whole, workers));
    CHECK(time_to_finish(whole, workers) == simulate(whole, workers));
    std::shuffle(whole.begin(), whole.end(), random);
    CHECK(time_to_finish(whole, workers) == simulate(whole, workers));
    const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    CHECK(work.time >= of.step * total / workers);
    CHECK(work.time <= of.step * total + of.tile * static_cast<int64_t>(lengths.size()));
  }
}
