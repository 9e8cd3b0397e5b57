#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

namespace bs::cuda {

namespace {

using Pieces = std::vector<device::WorkPiece>;

/// Of a piece, one of so many parts of an item; `last`: the one that adds the others' sums.
int64_t cost(const SplitCosts& of, int64_t steps, int64_t parts, bool last) {
  return of.step * steps + (last ? of.tile + of.load * (parts - 1) : of.store);
}

/// Which items are cut, those from `first` on, and into parts of how many steps at most.
struct Cut {
  size_t first = 0;
  int64_t most = 0;

  int64_t parts(size_t item, int64_t length) const {
    return item < first ? 1 : std::max<int64_t>(1, (length + most - 1) / most);
  }
};

/// Items one after the other of the same length, and parts of each.
struct Alike {
  int64_t length, items, parts = 1;
};
std::vector<Alike> whole_alike(const std::vector<int32_t>& lengths) {
  std::vector<Alike> all;
  for (const int32_t length : lengths) {
    if (all.empty() || all.back().length != length) all.push_back({length, 0});
    ++all.back().items;
  }
  return all;
}
/// The same items, cut.
std::vector<Alike> cut_alike(const std::vector<Alike>& items, const Cut& cut) {
  std::vector<Alike> all;
  size_t item = 0;
  for (const Alike& of : items) {
    const size_t end = item + static_cast<size_t>(of.items),
                 first = std::clamp(cut.first, item, end);
    for (const auto& [from, to] : {std::pair(item, first), std::pair(first, end)})
      if (from < to)
        all.push_back({of.length, static_cast<int64_t>(to - from), cut.parts(from, of.length)});
    item = end;
  }
  return all;
}

/// No schedule of these ends before.
int64_t least_time(const std::vector<Alike>& cut, const SplitCosts& of, int workers) {
  int64_t total = 0, longest = 0;
  for (const auto& [length, items, parts] : cut) {
    total += items * (of.step * length + of.tile + (parts - 1) * (of.store + of.load));
    longest = std::max(longest, of.step * (length / parts) + of.tile + (parts - 1) * of.load);
  }
  return std::max(longest, ceil_div(total, workers));
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
    const int64_t length = lengths[item], parts = cut.parts(item, length);
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
  std::ranges::stable_sort(pieces, std::greater{},
                           [](const device::WorkPiece& piece) { return piece.end - piece.begin; });
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

}  // namespace

int64_t time_to_finish(std::span<const int64_t> costs, int workers) {
  Workers pool(workers);
  for (size_t i = 0, end = 0; i < costs.size(); i = end) {
    while (end < costs.size() && costs[end] == costs[i]) ++end;
    pool.take(costs[i], static_cast<int64_t>(end - i));
  }
  return pool.end();
}

namespace {

/// When items are done that are taken whole in their order.
template <class Items, class Length>
int64_t time_of_whole(const Items& items, const Length& length, const SplitCosts& of, int workers) {
  std::vector<int64_t> costs;
  costs.reserve(items.size());
  for (const auto& item : items) costs.push_back(cost(of, length(item), 1, true));
  return time_to_finish(costs, workers);
}

/// When number_parts' pieces are done.
int64_t time_of(const std::vector<Alike>& cut, const SplitCosts& of, int workers) {
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
  std::ranges::stable_sort(runs, std::greater{}, &Run::length);
  Workers pool(workers);
  for (const Run& run : runs) {
    const int64_t inner = cost(of, run.length, run.parts, false);
    const int64_t last = cost(of, run.length, run.parts, true);
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
WorkPieces split_sorted(const std::vector<int32_t>& lengths, int workers, const SplitCosts& of,
                        double limit) {
  const int64_t whole = time_of_whole(lengths, std::identity{}, of, workers);
  if (lengths.empty()) return {.time = whole};
  int64_t time = whole;
  Cut best;
  const std::vector<Alike> items = whole_alike(lengths);
  const size_t rounds = lengths.size() / static_cast<size_t>(workers);
  for (const size_t first : {size_t{0}, rounds * static_cast<size_t>(workers)}) {
    if (first == lengths.size()) continue;
    for (int parts = 2; parts <= std::min(most_parts, lengths[first]); ++parts) {
      const Cut cut{first, (lengths[first] + parts - 1) / parts};
      const std::vector<Alike> alike = cut_alike(items, cut);
      const int64_t slots = slots_of(alike);
      SplitCosts among = of;
      among.load = of.load_among(slots);
      if (!pays(least_time(alike, among, workers) + of.list, time) || slots > of.most_slots)
        continue;
      const int64_t own = time_of(alike, among, workers) + of.list;
      if (!pays(own, time)) continue;
      best = cut;
      time = own;
    }
  }
  if (best.most == 0 || static_cast<double>(time) >= limit) return {.time = whole};
  WorkPieces work = number_parts(make_pieces(lengths, best), lengths.size());
  work.time = time;
  return work;
}

}  // namespace

WorkPieces split_work(const std::vector<int32_t>& lengths, int workers, const SplitCosts& of,
                      double limit) {
  std::vector<int32_t> order(lengths.size()), sorted;
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](int32_t item) { return lengths[static_cast<size_t>(item)]; };
  if (!std::is_sorted(lengths.rbegin(), lengths.rend()))
    std::ranges::stable_sort(order, std::greater{}, length);
  std::transform(order.begin(), order.end(), std::back_inserter(sorted), length);
  WorkPieces work = split_sorted(sorted, workers, of, limit);
  for (device::WorkPiece& piece : work.pieces) piece.item = order[static_cast<size_t>(piece.item)];
  return work;
}

WorkPieces split_in_order(const std::vector<int32_t>& lengths, int workers, const SplitCosts& of) {
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t whole = time_of_whole(lengths, std::identity{}, of, workers);
  const auto items = static_cast<int64_t>(lengths.size());
  const int64_t even = (of.step * sum + of.tile * items) / workers + of.list;
  if (!pays(even, whole)) return {.time = whole};
  const auto begins_early = [&](const device::WorkPiece& piece) {
    return piece.parts > 1 || int64_t{16} * workers * (piece.end - piece.begin) > sum;
  };
  WorkPieces work = split_work(lengths, workers, of);
  if (!work.pieces.empty()) {
    const auto last = work.pieces.end();
    std::sort(std::stable_partition(work.pieces.begin(), last, begins_early), last,
              [](const auto& a, const auto& b) { return a.item < b.item; });
    return work;
  }
  Pieces sorted = make_pieces(lengths, {.first = lengths.size()});
  for (device::WorkPiece& piece : sorted) piece.parts = 1;
  const auto length = [](const device::WorkPiece& piece) { return piece.end; };  // of a whole one
  std::ranges::stable_sort(sorted.begin(),
                           std::stable_partition(sorted.begin(), sorted.end(), begins_early),
                           std::greater{}, length);
  const int64_t own = time_of_whole(sorted, length, of, workers) + of.list;
  if (!pays(own, whole)) return {.time = whole};
  return {.pieces = std::move(sorted), .time = own};
}

}  // namespace bs::cuda
