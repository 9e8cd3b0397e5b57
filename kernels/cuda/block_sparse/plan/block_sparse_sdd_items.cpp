#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>

#include <algorithm>
#include <cmath>

namespace bs::cuda {

std::vector<device::SddRange> cut_ranges(const std::vector<device::SddRange>& ranges, int most) {
  std::vector<device::SddRange> cut;
  cut.reserve(ranges.size());
  for (const auto& [strip, first, length] : ranges) {
    if (length <= most) {  // most are: no division
      if (length > 0) cut.push_back({.strip = strip, .first = first, .count = length});
      continue;
    }
    const int count = (length + most - 1) / most;
    for (int i = 0; i < count; ++i) {
      const auto begin = static_cast<int>(int64_t{length} * i / count);
      const auto end = static_cast<int>(int64_t{length} * (i + 1) / count);
      cut.push_back({.strip = strip, .first = first + begin, .count = end - begin});
    }
  }
  return cut;
}

std::vector<device::SddRange> whole_ranges(const Strips& strips) {
  std::vector<device::SddRange> whole;
  whole.reserve(static_cast<size_t>(strips.heads) * static_cast<size_t>(strips.count));
  for (int strip = 0; strip < strips.heads * strips.count; ++strip)
    whole.push_back({.strip = strip,
                     .first = strips.offsets[static_cast<size_t>(strip)],
                     .count = strips.length(strip)});
  return whole;
}

std::vector<double> sdd_costs(const std::vector<device::SddRange>& items, int lines, int block,
                              const WarpgroupTile& tile, const Gpu& gpu) {
  std::vector<double> costs;
  costs.reserve(items.size());
  for (const device::SddRange& item : items)
    costs.push_back(sdd_step(lines + item.count * block, tile.cols, gpu));
  return costs;
}

SddItems list_sdd(const std::vector<device::SddRange>& strips, int lines, int block,
                  const WarpgroupTile& tile, const Gpu& gpu) {
  SddItems items{.ranges = cut_ranges(strips, tile.sdd_cols(block))};
  items.costs = sdd_costs(items.ranges, lines, block, tile, gpu);
  return items;
}

SddItems order_sdd(const SddItems& items, int rows, int64_t columns, int workers) {
  const std::vector<device::SddRange>& ranges = items.ranges;
  if (ranges.empty()) return items;
  std::vector<size_t> begins;  // of each strip's slices
  for (size_t i = 0; i < ranges.size(); ++i)
    if (i == 0 || ranges[i].strip != ranges[i - 1].strip) begins.push_back(i);
  const double slices = static_cast<double>(ranges.size()) / static_cast<double>(begins.size());
  // n slices of a strip, of columns / slices each, for the same lines of both operands.
  const double n =
      std::sqrt(workers * rows * slices / static_cast<double>(std::max<int64_t>(columns, 1)));
  const auto groups = static_cast<size_t>(std::max(1L, std::lround(slices / n)));
  begins.push_back(ranges.size());
  SddItems out;
  for (size_t group = 0; group < groups; ++group)
    for (size_t strip = 0; strip + 1 < begins.size(); ++strip) {
      const size_t begin = begins[strip], count = begins[strip + 1] - begin;
      const auto first = [&](size_t of) { return begin + (of * count + groups - 1) / groups; };
      for (size_t i = first(group); i < first(group + 1); ++i) {
        out.ranges.push_back(ranges[i]);
        out.costs.push_back(items.costs[i]);
      }
    }
  return out;
}

}  // namespace bs::cuda
