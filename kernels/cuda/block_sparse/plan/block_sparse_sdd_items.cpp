#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace bs::cuda {

double SddItems::cost() const { return std::accumulate(costs.begin(), costs.end(), 0.0); }

std::vector<device::SddRange> cut_ranges(const std::vector<device::SddRange>& ranges, int most) {
  std::vector<device::SddRange> cut;
  for (const auto& [strip, first, length] : ranges) {
    const int count = (length + most - 1) / most;
    for (int i = 0; i < count; ++i) {
      const auto begin = static_cast<int>(int64_t{length} * i / count);
      const auto end = static_cast<int>(int64_t{length} * (i + 1) / count);
      cut.push_back({.strip = strip, .first = first + begin, .count = end - begin});
    }
  }
  return cut;
}

std::vector<device::SddRange> cut_columns(const Strips& strips, int most) {
  std::vector<device::SddRange> whole;
  for (int strip = 0; strip < strips.heads * strips.count; ++strip)
    whole.push_back({.strip = strip,
                     .first = strips.offsets[static_cast<size_t>(strip)],
                     .count = strips.length(strip)});
  return cut_ranges(whole, most);
}

SddItems list_sdd(const Strips& strips, int block, SddForm form, const Gpu& gpu) {
  const WarpgroupTile tile = warpgroup_sdd_tile(block, form);
  SddItems items{.ranges = cut_columns(strips, tile.sdd_cols(block))};
  for (size_t begin = 0, end = 0; begin < items.ranges.size(); begin = end) {
    while (end < items.ranges.size() && items.ranges[end].strip == items.ranges[begin].strip) ++end;
    for (size_t i = begin; i < end; ++i) {
      const int lines = (tile.sdd_rows(block) + items.ranges[i].count) * block;
      items.slices.push_back({static_cast<int>(i - begin), static_cast<int>(end - begin)});
      items.costs.push_back(sdd_step(lines, tile.cols, gpu));
    }
  }
  return items;
}

SddItems order_sdd(const SddItems& items, int rows, int64_t columns, int workers) {
  const std::vector<double>& costs = items.costs;
  if (costs.empty()) return items;
  const auto count = static_cast<double>(costs.size());
  double strips = 0;
  for (const auto& slice : items.slices) strips += 1.0 / slice[1];
  // n slices of a strip, of columns / (count / strips) each, for the same lines of both operands.
  const double n = std::sqrt(workers * rows * (count / strips) /
                             static_cast<double>(std::max<int64_t>(columns, 1)));
  const int groups = std::max(1, static_cast<int>(std::lround(count / strips / n)));
  const auto group_of = [&](size_t i) { return items.slices[i][0] * groups / items.slices[i][1]; };
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return group_of(a) < group_of(b); });
  SddItems out;
  for (const size_t i : order) {
    out.ranges.push_back(items.ranges[i]);
    out.costs.push_back(costs[i]);
    out.slices.push_back(items.slices[i]);
  }
  return out;
}

}  // namespace bs::cuda
