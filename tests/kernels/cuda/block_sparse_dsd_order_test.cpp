#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dsd_order.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/lib/patterns.h>
#include <bs/tests/support/uneven_layout.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

/// What it costs to take strips over columns in some order: steps and two more at each item's end.
std::vector<int64_t> costs_in_order(const device::WorkOrder& order,
                                    const std::vector<int32_t>& lengths, int columns) {
  std::vector<int64_t> costs;
  const auto take = [&](size_t begin, size_t end, int count) {
    for (size_t strip = begin; strip < end; ++strip)
      costs.insert(costs.end(), static_cast<size_t>(count), lengths[strip]);
  };
  const auto first = static_cast<size_t>(order.first);
  take(0, first, columns);
  for (int group = 0; group < order.groups; ++group)
    take(first, lengths.size(),
         group + 1 < order.groups ? order.group : columns - group * order.group);
  return costs;
}

/// Whether two orders are the same.
bool same(const device::WorkOrder& a, const device::WorkOrder& b) {
  return a.first == b.first && a.group == b.group && a.groups == b.groups;
}

/// The order of dsd over `columns` tiles of 256 columns of bf16, on 132 workers with 50 MB of L2.
struct Ordered {
  device::WorkOrder order, by_length, by_columns;

  Ordered(const Layout& layout, int columns, int64_t products = 1, int cols = 256, int batch = 1,
          bool in_parts = false) {
    const Strips strips = make_strips(layout, {.side = 128 / layout.block()});
    const DsdExtent extent{.cols = cols,
                           .columns = columns,
                           .products = products,
                           .tiles = columns / batch,
                           .in_parts = in_parts};
    const Gpu gpu;
    order = order_dsd(layout, strips, extent, gpu);
    std::vector<int32_t> lengths;
    for (const int32_t strip : strips.order)
      lengths.push_back((strips.length(strip) * layout.block() + 63) / 64);
    const int64_t fitting = gpu.l2_bytes / 4 / (2 * layout.width() * cols * products);
    by_length = order_by_length(lengths, columns, fitting, 132);
    by_columns = order_by_columns(lengths, columns, fitting, 132);
  }
};

}  // namespace

TEST_CASE("order: columns come in groups that the cache holds, long strips before them") {
  const std::vector<int32_t> even(64, 32);
  // All that fits, but for three items for each worker at the end.
  const device::WorkOrder one = order_by_length(even, 16, 16, 132);
  CHECK(one.groups == 2);
  CHECK(same(order_by_length(even, 7, 16, 132), all_strips(64, 7)));
  // 7 columns are three items for each of 132: the last group has them; the others what fits.
  const device::WorkOrder groups = order_by_length(even, 32, 6, 132);
  CHECK(groups.first == 0);
  CHECK(groups.group == 6);
  CHECK(groups.groups == 5);  // 4 of 6 and 8
  CHECK(order_by_length(even, 8, 6, 132).group == 1);
  // One strip as long as all others.
  std::vector<int32_t> skewed(64, 4);
  skewed[0] = 256;
  CHECK(order_by_length(skewed, 32, 6, 132).first == 1);
}

TEST_CASE("order: groups of columns go on to the end where the last ones are not late") {
  const std::vector<int32_t> even(64, 32);
  const device::WorkOrder groups = order_by_columns(even, 32, 6, 132);
  CHECK(groups.first == 0);
  CHECK(groups.group == 6);
  CHECK(groups.groups == 6);  // 5 of 6 and 2
  CHECK(order_by_columns(even, 8, 6, 132).group == 6);
  // No column fits, and two are worked on at once.
  CHECK(order_by_columns(even, 8, 0, 132).group == 2);
  // Three items for each worker fit, and one group has them all.
  CHECK(same(order_by_columns(even, 32, 7, 132), order_by_length(even, 32, 7, 132)));
}

TEST_CASE("order: groups of columns end about as early as the longest item first") {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const int columns = 2 + static_cast<int>(random() % 40),
              fitting = static_cast<int>(random() % 8);
    std::vector<int32_t> lengths(1 + random() % 150);
    const auto most = 2 + random() % 100;
    for (int32_t& length : lengths) length = static_cast<int32_t>(random() % most);
    if (i % 3 == 0) lengths[0] = 400;
    std::sort(lengths.rbegin(), lengths.rend());
    const std::vector<int64_t> costs =
        costs_in_order(order_by_columns(lengths, columns, fitting, 132), lengths, columns);
    REQUIRE(costs.size() == lengths.size() * static_cast<size_t>(columns));
    std::vector<int64_t> sorted = costs;
    std::sort(sorted.rbegin(), sorted.rend());
    // Column after column it would be up to 1.8 times.
    CHECK(10 * time_to_finish(costs, 132) <= 11 * time_to_finish(sorted, 132));
  }
}

TEST_CASE("order: runs of strips read the columns that any of their rows has") {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    const int heads = 1 + static_cast<int>(random() % 3), side = 1 << random() % 4;
    const int rows = 1 + static_cast<int>(random() % 60),
              cols = 1 + static_cast<int>(random() % 150);
    const LayoutPtr layout = test::uneven_layout(random, heads, rows, cols, 16,
                                                 1 + static_cast<unsigned>(random() % 12));
    for (const bool transposed : {false, true})
      for (const bool gathered : {false, true}) {
        const Strips strips =
            make_strips(*layout, {.transposed = transposed, .side = side, .gathered = gathered});
        const DeviceStrips listed(*layout, strips, Device::cpu());
        const int ranks = strips.count;
        const int first = static_cast<int>(random() % static_cast<unsigned>(ranks)),
                  at_once = 1 + static_cast<int>(random() % 6);
        int64_t read = 0, all = 0;
        for (int head = 0; head < heads; ++head) {
          std::set<int32_t> any, run;
          for (int rank = first; rank < ranks; ++rank) {
            const int32_t strip = strips.order[static_cast<size_t>(head * ranks + rank)];
            for (int e = listed.list.offsets[strip]; e < listed.list.offsets[strip + 1]; ++e) {
              run.insert(listed.list.cols[e]);
              any.insert(listed.list.cols[e]);
            }
            if ((rank - first) % at_once == at_once - 1 || rank + 1 == ranks) {
              read += static_cast<int64_t>(run.size());
              run.clear();
            }
          }
          all += static_cast<int64_t>(any.size());
        }
        const double expected = all == 0 ? 0 : static_cast<double>(read) / static_cast<double>(all);
        CHECK(column_reads(*layout, strips, first, at_once) == expected);
      }
  }
}

TEST_CASE("order: strips that share no rows of B take turns by columns, bands follow each other") {
  const LayoutPtr random = patterns::random({.rows = 64, .block = 64}, {.density = .1, .seed = 1});
  const Ordered scattered(*random, 16);
  CHECK(!same(scattered.by_columns, scattered.by_length));
  CHECK(same(scattered.order, scattered.by_columns));
  // Several products multiply for longer than they read.
  const Ordered products(*random, 16, 3);
  CHECK(!same(products.by_columns, products.by_length));
  CHECK(same(products.order, products.by_length));
  CHECK(same(Ordered(*random, 16, 1, 256, 1, true).order, scattered.by_length));

  const LayoutPtr band =
      patterns::sliding_window({.rows = 256, .block = 64}, {.window_blocks = 7, .causal = false});
  const Ordered slid(*band, 64);
  CHECK(!same(slid.by_length, all_strips(128, 64)));
  CHECK(same(slid.order, all_strips(128, 64)));
  // So many C as have 16 tiles each.
  CHECK(same(Ordered(*band, 64, 1, 256, 4).order, slid.by_length));
  // Each strip has a row of B for itself.
  const LayoutPtr diagonal =
      patterns::sliding_window({.rows = 256, .block = 64}, {.window_blocks = 1, .causal = false});
  const Ordered apart(*diagonal, 64);
  CHECK(same(apart.order, apart.by_length));
  // The same rows for all strips of a few: the next ones read nothing more, then all else.
  const std::vector<int64_t> tokens(16, 1024);
  const Ordered experts(*patterns::moe(tokens, 1024, 64), 64);
  CHECK(same(experts.order, experts.by_length));
  // Few blocks, which cost little to read for each group.
  const LayoutPtr few = patterns::random({.rows = 32, .block = 128}, {.density = .1, .seed = 1});
  const Ordered by_chance(*few, 16);
  CHECK(!same(by_chance.by_length, all_strips(32, 16)));
  CHECK(same(by_chance.order, by_chance.by_length));
}

TEST_CASE("order: layouts without blocks, rows or columns have one, too") {
  for (const auto& [rows, cols] : {std::pair{0, 0}, {0, 64}, {64, 0}, {300, 300}}) {
    const LayoutPtr empty = Layout::from_blocks(1, rows, cols, 64, {});
    const Strips strips = make_strips(*empty, {.side = 2});
    const DsdExtent extent{.cols = 256, .columns = 64, .products = 1, .tiles = 64};
    const device::WorkOrder order = order_dsd(*empty, strips, extent, {});
    CHECK(order.groups >= 1);
    CHECK(order.first <= strips.count);
    CHECK((order.groups - 1) * order.group < 64);
  }
}
