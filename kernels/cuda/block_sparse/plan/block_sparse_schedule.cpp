#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace bs::cuda {

uint64_t schedule_key(bool sampled, bool transposed, int kind, int64_t repeats, int64_t steps,
                      Device device) {
  return uint64_t{1} << 63 | uint64_t{sampled} << 62 | uint64_t{transposed} << 61 |
         static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(device.index()) << 50 |
         static_cast<uint64_t>(repeats) << 25 | static_cast<uint64_t>(steps);
}

uint64_t dsd_key(const DsdExtent& x, bool by_head, Device device) {
  const int64_t repeats = by_head ? (x.columns / x.tiles) << 12 | x.tiles : x.columns;
  // Columns of 16-bit tiles are 64, 128 or 256, of gathered rows or not; those of f32, 256 or 512,
  // of one or two rows, which the block tells, or of four.
  const int cols = x.element == 2 ? x.cols : x.cols > 256 ? 6 * 64 : 5 * 64;
  const bool single = x.element != 2;
  const int kind = !x.gathered || single ? cols / 64 : cols == 64 ? 0 : cols == 128 ? 3 : 7;
  const int64_t products =
      8 * x.products + 4 * x.in_parts + 2 * (single && x.rows == 4) + (single && x.gathered);
  const bool one = by_head ? x.sums_heads : x.tiles == x.columns;  // sum of heads, or C
  return schedule_key(false, x.transposed, kind, repeats, products, device) |
         uint64_t{by_head} << 60 | uint64_t{one} << 59;
}

DevicePieces::DevicePieces(const WorkPieces& work, Device device)
    : count(static_cast<int>(work.pieces.size())), slots(work.slots) {
  if (count == 0) return;
  packed = upload(work.pieces, device);
  pieces = reinterpret_cast<const device::WorkPiece*>(packed.data<int32_t>());
}

DeviceShares::DeviceShares(const std::vector<device::SddShare>& shares,
                           const GatheredStrips& strips, Device device) {
  static_assert(sizeof(device::SddShare) % sizeof(int32_t) == 0);
  const auto* const words = reinterpret_cast<const int32_t*>(shares.data());
  std::vector<int32_t> all(words,
                           words + shares.size() * sizeof(device::SddShare) / sizeof(int32_t));
  const auto append = [&](const std::vector<int32_t>& part) {
    const size_t begin = all.size();
    all.insert(all.end(), part.begin(), part.end());
    return begin;
  };
  rows_ = append(strips.rows);
  cols_ = append(strips.cols);
  blocks_ = append(strips.blocks);
  packed = upload(all, device);
  work = reinterpret_cast<const device::SddShare*>(packed.data<int32_t>());
}

device::StripList DeviceShares::gathered(device::StripList list, int rows) const {
  const int32_t* const words = packed.data<int32_t>();
  list.rows = words + rows_;
  list.cols = words + cols_;
  list.blocks = words + blocks_;
  list.strips = rows;
  return list;
}

std::vector<int32_t> dsd_items(const BlockSparseStrips& strips, int block,
                               const DsdExtent& extent) {
  const int64_t ranks = strips.list.strips;
  const auto heads = static_cast<int64_t>(strips.order.size()) / std::max<int64_t>(ranks, 1);
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

const DsdSchedule& schedule_dsd(const Layout& layout, const BlockSparseStrips& strips,
                                const DsdExtent& extent, Device device) {
  const DeviceProperties& gpu = device_properties(device);
  const int workers = gpu.multiprocessors, count = strips.list.strips;
  const bool listed = count * extent.columns <=
                      std::min(int64_t{most_split_items} * workers, int64_t{most_listed_items});
  const uint64_t key = dsd_key(extent, listed && layout.heads() > 1, device);
  const auto& kept = layout.derived<DsdSchedule>(key, [&] {
    DevicePieces split;
    if (listed)
      split = DevicePieces(
          split_work(dsd_items(strips, layout.block(), extent), workers, extent.costs), device);
    if (split.count == 0)
      return DsdSchedule{order_dsd(layout, strips, extent, gpu.l2_bytes, workers), {}, {}};
    // Items are numbered as dsd_items has them.
    return DsdSchedule{all_strips(count, extent.columns), std::move(split),
                       Milestone(current_stream(device))};
  });
  kept.made.wait(current_stream(device));
  return kept;
}

}  // namespace bs::cuda
