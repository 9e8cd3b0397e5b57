#include <bs/kernels/cuda/block_sparse/plan/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace bs::cuda {

namespace {

/// Where two CTAs have half of the depth each: what it takes to wait for each other and exchange
/// the sums of a block column.
constexpr int exchange_cycles = 4500;

}  // namespace

int64_t SddItems::cost() const { return std::accumulate(costs.begin(), costs.end(), int64_t{0}); }

int32_t sdd_cycles(int lines, int cols) {
  // Measured on an H200: L2 hands a multiprocessor a line of 128 bytes in 3.2 cycles; a product of
  // 64 x 8 x 64 takes a warpgroup 32 cycles, both beside each other.
  return std::max(lines * 16 / 5, cols * 4);
}

SddItems list_sdd(const BlockSparseStrips& strips, int block, SddForm form) {
  const WarpgroupTile tile = warpgroup_sdd_tile(block, form);
  const int most = tile.sdd_cols(block);
  SddItems items;
  for (int strip = 0; strip + 1 < static_cast<int>(strips.offsets.size()); ++strip) {
    const int length = strips.length(strip), count = (length + most - 1) / most;
    const auto slice = [&](int i) { return static_cast<int>(int64_t{length} * i / count); };
    for (int i = 0; i < count; ++i) {
      const int columns = slice(i + 1) - slice(i);
      items.shares.push_back({.strip = strip,
                              .first = strips.offsets[static_cast<size_t>(strip)] + slice(i),
                              .count = columns,
                              .halved = 0});
      items.slices.push_back({i, count});
      items.costs.push_back(sdd_cycles((tile.sdd_rows(block) + columns) * block, tile.cols));
    }
  }
  return items;
}

SddItems list_sdd_by_depth(const BlockSparseStrips& strips, int64_t steps, int64_t whole,
                           bool narrow) {
  std::vector<device::SddShare> wide, single;
  for (int strip = 0; strip + 1 < static_cast<int>(strips.offsets.size()); ++strip) {
    const int begin = strips.offsets[static_cast<size_t>(strip)], length = strips.length(strip);
    for (int at = 0; at < length; at += 2) {
      const device::SddShare share{
          .strip = strip, .first = begin + at, .count = std::min(2, length - at), .halved = 0};
      (share.count == 2 ? wide : single).push_back(share);
    }
  }
  SddItems items;
  // What L2 hands out is the bound; CTAs of a cluster wait for each other, and those at another
  // depth read other lines.
  const auto cost = [](int columns) { return (1 + columns) * 128 * 16 / 5 * 13 / 10; };
  const size_t pairs = std::min(static_cast<size_t>(whole), wide.size() / 2);
  items.shares.assign(wide.begin(), wide.begin() + static_cast<int64_t>(2 * pairs));
  items.costs.assign(pairs, cost(2));
  const auto halve = [&](device::SddShare share, int columns) {
    share.count = columns;
    share.halved = 1;
    items.shares.insert(items.shares.end(), 2, share);
    items.costs.push_back(cost(columns) / 2 + static_cast<int32_t>(exchange_cycles * columns /
                                                                   std::max<int64_t>(steps, 1)));
  };
  for (size_t i = 2 * pairs; i < wide.size(); ++i) {
    halve(wide[i], narrow ? 1 : 2);
    if (narrow) ++wide[i].first, halve(wide[i], 1);
  }
  for (const device::SddShare& share : single) halve(share, 1);
  return items;
}

SddItems order_sdd(const SddItems& items, int rows, int64_t columns, int workers) {
  const std::vector<int32_t>& costs = items.costs;
  if (costs.empty()) return items;
  const auto count = static_cast<double>(costs.size());
  double strips = 0;
  for (const auto& slice : items.slices) strips += 1.0 / slice[1];
  // n slices of a strip, of columns / (count / strips) each, for the same lines of both operands.
  const double n = std::sqrt(workers * rows * (count / strips) /
                             static_cast<double>(std::max<int64_t>(columns, 1)));
  const int groups = std::max(1, static_cast<int>(std::lround(count / strips / n)));
  const int32_t half = *std::max_element(costs.begin(), costs.end()) / 2;
  std::vector<std::pair<int, int>> ranks;
  for (size_t i = 0; i < costs.size(); ++i)
    ranks.push_back(costs[i] > half ? std::pair(items.slices[i][0] * groups / items.slices[i][1], 0)
                                    : std::pair(groups, -costs[i]));
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranks[a] < ranks[b]; });
  SddItems out;
  for (const size_t i : order) {
    out.shares.push_back(items.shares[i]);
    out.costs.push_back(costs[i]);
    out.slices.push_back(items.slices[i]);
  }
  return out;
}

}  // namespace bs::cuda
