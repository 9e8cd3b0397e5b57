#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dsd_order.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <numeric>

namespace bs::cuda {

namespace {

/// Steps that dsd takes for the strips of each rank, the longest first; the mean over heads.
std::vector<int32_t> dsd_lengths(const Strips& strips, int block) {
  const auto ranks = static_cast<size_t>(strips.count);
  const int64_t heads = strips.heads;
  std::vector<int64_t> entries(ranks);
  for (size_t i = 0; i < strips.order.size(); ++i)
    entries[i % ranks] += strips.length(strips.order[i]);
  std::vector<int32_t> lengths;
  for (const int64_t sum : entries) {
    const int64_t mean = ceil_div(sum, heads);
    lengths.push_back(dsd_steps(mean, block));
  }
  return lengths;
}

/// More are ordered without a look at when they end, which would take as long as they do.
constexpr int64_t most_simulated_items = 1 << 16;

/// Columns, of which so many workers have three items each.
int64_t three_each(int64_t strips, int workers) {
  return (3 * workers + strips - 1) / std::max<int64_t>(strips, 1);
}

/// Columns of the last group.
int64_t last_group(const device::WorkOrder& order, int64_t columns) {
  return columns - int64_t{order.groups - 1} * order.group;
}

/// When the last of `workers` ends who take strips of these lengths in that order.
int64_t time_of_order(const device::WorkOrder& order, const std::vector<int32_t>& lengths,
                      int64_t columns, int workers) {
  std::vector<int64_t> costs;
  costs.reserve(lengths.size() * static_cast<size_t>(columns));
  const auto append = [&](size_t begin, size_t end, int64_t count) {
    for (size_t strip = begin; strip < end; ++strip)
      costs.insert(costs.end(), static_cast<size_t>(count), lengths[strip]);
  };
  const auto first = static_cast<size_t>(order.first);
  append(0, first, columns);
  for (int group = 0; group < order.groups; ++group)
    append(first, lengths.size(),
           group + 1 < order.groups ? order.group : last_group(order, columns));
  return time_to_finish(costs, workers);
}

/// Groups of so many columns, the last one of at least `last`, behind strips longer than half a
/// worker's share of `shared` columns.
device::WorkOrder order_groups(const std::vector<int32_t>& lengths, int64_t columns, int64_t group,
                               int64_t last, int64_t shared, int workers) {
  const int64_t work = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto first = std::find_if(lengths.begin(), lengths.end(), [&](int32_t length) {
    return int64_t{length} * 2 * workers <= shared * work;
  });
  const int64_t groups = (columns - last) / group + 1;
  return {.first = static_cast<int>(first - lengths.begin()),
          .group = static_cast<int>(group),
          .groups = static_cast<int>(groups)};
}

}  // namespace

device::WorkOrder order_by_length(const std::vector<int32_t>& lengths, int64_t columns,
                                  int64_t fitting, int workers) {
  const auto strips = static_cast<int64_t>(lengths.size());
  const int64_t last = three_each(strips, workers);
  if (last >= columns) return all_strips(strips, columns);
  const int64_t group = std::clamp<int64_t>(fitting, 1, columns - last);
  const int64_t rest = columns - (columns - last) / group * group;
  return order_groups(lengths, columns, group, last, rest, workers);
}

device::WorkOrder order_by_columns(const std::vector<int32_t>& lengths, int64_t columns,
                                   int64_t fitting, int workers) {
  const auto strips = static_cast<int64_t>(lengths.size());
  const int64_t most = std::min(three_each(strips, workers), columns);
  const int64_t group = std::max({fitting, workers / std::max<int64_t>(strips, 1), int64_t{1}});
  const device::WorkOrder by_length = order_by_length(lengths, columns, fitting, workers);
  if (most <= group || strips * columns > most_simulated_items) return by_length;
  const int64_t soonest = time_of_order(by_length, lengths, columns, workers);
  for (int64_t last = 1; last < most; last *= 2) {
    const device::WorkOrder order =
        order_groups(lengths, columns, std::min(group, columns - last), last, columns, workers);
    if (20 * time_of_order(order, lengths, columns, workers) <= 21 * soonest) return order;
  }
  return by_length;
}

namespace {

/// Whether strips of one C slide along the rows of B, and so read about as little of memory as
/// groups of columns do, each of which reads all blocks again. Several C are left out: each may
/// have a B and blocks of its own.
bool strips_follow(const Layout& layout, const Strips& strips, const DsdExtent& x, int workers) {
  if (x.tiles != x.columns) return false;
  const auto count = static_cast<int64_t>(strips.count);
  const auto at_once = static_cast<int>(std::max<int64_t>(workers / x.columns, 1));
  const auto reads = [&](int run) { return column_reads(layout, strips, 0, run); };
  const auto runs = [&](int run) { return static_cast<double>(ceil_div(count, run)); };
  const double one = reads(at_once), two = reads(2 * at_once);
  const bool slide = two / runs(2 * at_once) >= (1 + least_fresh) * one / runs(at_once) &&
                     reads(1) >= least_common * two;
  const int64_t block = layout.block(),
                depth = strips.shape.transposed ? layout.height() : layout.width();
  const auto of_b = static_cast<double>(depth * x.cols * x.columns),
             of_blocks = static_cast<double>(layout.nnz() * block * block);
  const double groups = std::max(static_cast<double>(x.columns * count) / workers, 1.0);
  return slide && of_b * one + of_blocks < 1.1 * (of_b + of_blocks * groups);
}

}  // namespace

device::WorkOrder order_dsd(const Layout& layout, const Strips& strips, const DsdExtent& extent,
                            const Gpu& gpu) {
  const int workers = gpu.multiprocessors;
  const std::vector<int32_t> lengths = dsd_lengths(strips, layout.block());
  const int64_t depth = strips.shape.transposed ? layout.height() : layout.width();
  const int64_t bytes = extent.element * depth * extent.products * extent.cols;  // a column of B
  const int64_t fitting = gpu.l2_bytes / 4 / std::max<int64_t>(bytes, 1);
  const device::WorkOrder by_length = order_by_length(lengths, extent.columns, fitting, workers);
  if (extent.products > 1 || extent.in_parts || by_length.groups == 1) return by_length;
  const int64_t at_once = workers / last_group(by_length, extent.columns);
  const double reads = column_reads(layout, strips, by_length.first,
                                    static_cast<int>(std::max<int64_t>(at_once, 1)));
  if (reads >= most_reads) return order_by_columns(lengths, extent.columns, fitting, workers);
  return strips_follow(layout, strips, extent, workers) ? all_strips(strips.count, extent.columns)
                                                        : by_length;
}

std::vector<int32_t> dsd_items(const Strips& strips, int block, const DsdExtent& extent) {
  const int64_t ranks = strips.count, heads = strips.heads;
  std::vector<int32_t> items;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t column = 0; column < extent.columns; ++column) {
      const int64_t head = extent.sums_heads ? 0 : column / extent.tiles % heads;
      const int64_t strip = strips.order[static_cast<size_t>(head * ranks + rank)] % ranks;
      const int64_t ways = extent.sums_heads ? heads : 1;  // heads whose strips are summed
      int64_t steps = 0;
      for (int64_t h = head; h < head + ways; ++h)
        steps += dsd_steps(strips.length(static_cast<int>(h * ranks + strip)), block);
      items.push_back(static_cast<int32_t>(steps * (extent.products / ways)));
    }
  return items;
}

}  // namespace bs::cuda
