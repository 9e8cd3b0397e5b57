#include <bs/kernels/cuda/block_sparse_schedule.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace bs::cuda {

namespace {

/// In steps, measured on an H200: the end of an item, the store of the sums of a part, waiting for
/// those of another and adding them, and that parts are there at all, which CTAs then take from a
/// list; and what a part is worth making for.
constexpr int tile_cost = 2, store_cost = 2, load_cost = 5, list_cost = 6, least_part = 4;
/// Parts of an item, and of all items but one each: memory for sums of 64 MiB (sdd: twice that).
constexpr int most_parts = 8, most_slots = 500;

using Pieces = std::vector<device::WorkPiece>;

/// Of a piece, one of so many parts of an item; `last`: the one that adds the others' sums.
int64_t cost(int64_t steps, int64_t parts, bool last) {
  return last ? steps + tile_cost + load_cost * (parts - 1) : steps + store_cost;
}

/// Which items are cut, those from `first` on, and into parts of how many steps at most.
struct Cut {
  size_t first = 0;
  int64_t most = 0;

  int64_t parts(const std::vector<int32_t>& lengths, size_t item) const {
    return item < first ? 1 : std::max<int64_t>(1, (lengths[item] + most - 1) / most);
  }
};

/// Items one after the other of the same length, and parts of each.
struct Alike {
  int64_t length, items, parts;
};
std::vector<Alike> cut_alike(const std::vector<int32_t>& lengths, const Cut& cut) {
  std::vector<Alike> all;
  for (size_t item = 0, end = 0; item < lengths.size(); item = end) {
    const size_t most = item < cut.first ? cut.first : lengths.size();
    while (end < most && lengths[end] == lengths[item]) ++end;
    all.push_back({lengths[item], static_cast<int64_t>(end - item), cut.parts(lengths, item)});
  }
  return all;
}

/// No schedule of these ends before.
int64_t least_time(const std::vector<Alike>& cut, int workers) {
  int64_t total = 0, longest = 0;
  for (const auto& [length, items, parts] : cut) {
    total += items * (length + tile_cost + (parts - 1) * (store_cost + load_cost));
    longest = std::max(longest, length / parts + tile_cost + (parts - 1) * load_cost);
  }
  return std::max(longest, (total + workers - 1) / workers);
}
/// Partial sums: parts of an item but its last.
int64_t slots_of(const std::vector<Alike>& cut) {
  int64_t slots = 0;
  for (const Alike& alike : cut) slots += alike.items * (alike.parts - 1);
  return slots;
}

/// Items and parts of them, as even as can be.
Pieces make_pieces(const std::vector<int32_t>& lengths, const Cut& cut) {
  Pieces pieces;
  for (size_t item = 0; item < lengths.size(); ++item) {
    const int64_t length = lengths[item], parts = cut.parts(lengths, item);
    for (int64_t part = 0; part < parts; ++part) {
      device::WorkPiece piece{};
      piece.item = static_cast<int>(item);
      piece.begin = static_cast<int>(length * part / parts);
      piece.end = static_cast<int>(length * (part + 1) / parts);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

/// Who is free when: takes pieces of work in their order, each as soon as anybody is free.
class Workers {
 public:
  explicit Workers(int count) { free_.push_back({0, count}); }
  /// So many pieces alike.
  void take(int64_t cost, int64_t count) {
    while (count > 0) {
      Free& next = free_[first_];
      const int64_t now = std::min(count, next.count), end = next.time + cost;
      count -= now;
      next.count -= now;
      if (next.count == 0) ++first_;
      size_t at = free_.size();
      while (at > first_ && free_[at - 1].time > end) --at;
      if (at > first_ && free_[at - 1].time == end) {
        free_[at - 1].count += now;
      } else {
        free_.insert(free_.begin() + static_cast<int64_t>(at), {end, now});
      }
    }
  }
  /// When the last one is free.
  int64_t end() const { return free_.back().time; }

 private:
  struct Free {
    int64_t time, count;
  };
  std::vector<Free> free_;  // from first_ on, by time
  size_t first_ = 0;
};

/// Puts the longest pieces first, and numbers the parts of each item as they then come.
WorkPieces number_parts(Pieces pieces, size_t items) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.end - a.begin > b.end - b.begin; });
  std::vector<int> parts(items), slots(items);
  for (device::WorkPiece& piece : pieces) piece.part = parts[static_cast<size_t>(piece.item)]++;
  WorkPieces work;
  for (size_t item = 0; item < items; ++item) {
    slots[item] = work.slots;
    work.slots += std::max(0, parts[item] - 1);
  }
  for (device::WorkPiece& piece : pieces) {
    const auto item = static_cast<size_t>(piece.item);
    piece.parts = parts[item];
    piece.slot = parts[item] > 1 ? slots[item] : 0;
  }
  work.pieces = std::move(pieces);
  return work;
}

/// Steps that dsd takes for a strip of so many union columns.
int32_t dsd_steps(int64_t columns, int block) {
  return static_cast<int32_t>((columns * block + 63) / 64);
}

/// Steps that dsd takes for the strips of each rank, the longest first; the mean over heads.
std::vector<int32_t> dsd_lengths(const BlockSparseStrips& strips, int block) {
  const auto ranks = static_cast<size_t>(strips.list.strips);
  const auto heads = static_cast<int64_t>(strips.order.size() / std::max<size_t>(ranks, 1));
  std::vector<int64_t> entries(ranks);
  for (size_t i = 0; i < strips.order.size(); ++i)
    entries[i % ranks] += strips.length(strips.order[i]);
  std::vector<int32_t> lengths;
  for (const int64_t sum : entries) {
    const int64_t mean = (sum + heads - 1) / heads;
    lengths.push_back(dsd_steps(mean, block));
  }
  return lengths;
}

}  // namespace

int64_t time_to_finish(std::span<const int64_t> costs, int workers) {
  Workers pool(workers);
  for (size_t i = 0, end = 0; i < costs.size(); i = end) {
    while (end < costs.size() && costs[end] == costs[i]) ++end;
    pool.take(costs[i], static_cast<int64_t>(end - i));
  }
  return pool.end();
}

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
  const int64_t products = 4 * x.products + 2 * (single && x.rows == 4) + (single && x.gathered);
  return schedule_key(false, x.transposed, kind, repeats, products, device) |
         uint64_t{by_head} << 60 | uint64_t{by_head && x.sums_heads} << 59;
}

device::WorkOrder order_work(const std::vector<int32_t>& lengths, int64_t columns, int64_t fitting,
                             int workers) {
  const auto strips = static_cast<int64_t>(lengths.size());
  const int64_t last = (3 * workers + strips - 1) / std::max<int64_t>(strips, 1);
  if (last >= columns)
    return {.first = static_cast<int>(strips), .group = static_cast<int>(columns), .groups = 1};
  const int64_t group = std::clamp<int64_t>(fitting, 1, columns - last);
  const int64_t groups = (columns - last) / group + 1, rest = columns - (groups - 1) * group;
  const int64_t work = std::accumulate(lengths.begin(), lengths.end(), strips * tile_cost);
  const auto first = std::find_if(lengths.begin(), lengths.end(), [&](int32_t length) {
    return int64_t{length} * 2 * workers <= rest * work;
  });
  return {.first = static_cast<int>(first - lengths.begin()),
          .group = static_cast<int>(group),
          .groups = static_cast<int>(groups)};
}

namespace {

/// When number_parts' pieces are done.
int64_t time_of(const std::vector<Alike>& cut, int workers) {
  /// Some pieces of equal length of each of so many items; whether the last one is an item's last.
  struct Run {
    int64_t length, parts, pieces, items;
    bool last;
  };
  std::vector<Run> runs;
  for (const auto& [length, items, parts] : cut) {
    const int64_t more = length % parts;
    if (more > 0) runs.push_back({length / parts + 1, parts, more, items, false});
    runs.push_back({length / parts, parts, parts - more, items, true});
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& a, const Run& b) { return a.length > b.length; });
  Workers pool(workers);
  for (const Run& run : runs) {
    const int64_t inner = cost(run.length, run.parts, false);
    const int64_t last = cost(run.length, run.parts, true);
    if (!run.last || run.pieces == 1) {
      pool.take(run.last ? last : inner, run.pieces * run.items);
      continue;
    }
    for (int64_t item = 0; item < run.items; ++item) {
      pool.take(inner, run.pieces - 1);
      pool.take(last, 1);
    }
  }
  return pool.end();
}

/// split_work of items in the order of their lengths.
WorkPieces split_sorted(const std::vector<int32_t>& lengths, int workers) {
  std::vector<int64_t> costs(lengths.size());
  std::transform(lengths.begin(), lengths.end(), costs.begin(),
                 [](int32_t length) { return cost(length, 1, true); });
  const int64_t whole = time_to_finish(costs, workers);
  if (lengths.empty()) return {.time = whole};
  int64_t time = whole;
  Cut best;
  const size_t rounds = lengths.size() / static_cast<size_t>(workers);
  for (const size_t first : {size_t{0}, rounds * static_cast<size_t>(workers)}) {
    if (first == lengths.size()) continue;
    for (int parts = 2; parts <= most_parts && lengths[first] >= parts * least_part; ++parts) {
      const Cut cut{first, (lengths[first] + parts - 1) / parts};
      const std::vector<Alike> alike = cut_alike(lengths, cut);
      if (20 * (least_time(alike, workers) + list_cost) >= 19 * time ||
          slots_of(alike) > most_slots)
        continue;
      const int64_t own = time_of(alike, workers) + list_cost;
      if (20 * own >= 19 * time) continue;
      best = cut;
      time = own;
    }
  }
  if (best.most == 0) return {.time = whole};
  WorkPieces work = number_parts(make_pieces(lengths, best), lengths.size());
  work.time = time;
  return work;
}

}  // namespace

WorkPieces split_work(const std::vector<int32_t>& lengths, int workers) {
  std::vector<int32_t> order(lengths.size()), sorted;
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](int32_t item) { return lengths[static_cast<size_t>(item)]; };
  if (!std::is_sorted(lengths.rbegin(), lengths.rend()))
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return length(a) > length(b); });
  std::transform(order.begin(), order.end(), std::back_inserter(sorted), length);
  WorkPieces work = split_sorted(sorted, workers);
  for (device::WorkPiece& piece : work.pieces) piece.item = order[static_cast<size_t>(piece.item)];
  return work;
}

WorkPieces split_in_order(const std::vector<int32_t>& lengths, int workers) {
  WorkPieces work = split_work(lengths, workers);
  if (!work.pieces.empty()) return work;
  const auto time_of_order = [&](const std::vector<int32_t>& order) {
    std::vector<int64_t> costs;
    for (const int32_t item : order)
      costs.push_back(cost(lengths[static_cast<size_t>(item)], 1, true));
    return time_to_finish(costs, workers);
  };
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  work.time = time_of_order(order);
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto is_long = [&](int32_t item) {
    return int64_t{16} * workers * lengths[static_cast<size_t>(item)] > sum;
  };
  const auto others = std::stable_partition(order.begin(), order.end(), is_long);
  std::stable_sort(order.begin(), others, [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  const int64_t own = time_of_order(order) + list_cost;
  if (20 * own >= 19 * work.time) return work;
  work.time = own;
  for (const int32_t item : order)
    work.pieces.push_back({.item = item,
                           .begin = 0,
                           .end = lengths[static_cast<size_t>(item)],
                           .part = 0,
                           .parts = 1,
                           .slot = 0});
  return work;
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
    const std::vector<int32_t> lengths = dsd_lengths(strips, layout.block());
    const int64_t depth = extent.transposed ? layout.height() : layout.width();
    const int64_t bytes = extent.element * depth * extent.products * extent.cols;  // a column of B
    const int64_t fitting = gpu.l2_bytes / 4 / std::max<int64_t>(bytes, 1);
    const device::WorkOrder order = order_work(lengths, extent.columns, fitting, workers);
    if (!listed) return DsdSchedule{order, {}, {}};
    DevicePieces split(split_work(dsd_items(strips, layout.block(), extent), workers), device);
    if (split.count == 0) return DsdSchedule{order, {}, {}};
    // Items are numbered as dsd_items has them.
    const device::WorkOrder by_length{
        .first = count, .group = static_cast<int>(extent.columns), .groups = 1};
    return DsdSchedule{by_length, std::move(split), Milestone(current_stream(device))};
  });
  kept.made.wait(current_stream(device));
  return kept;
}

}  // namespace bs::cuda
