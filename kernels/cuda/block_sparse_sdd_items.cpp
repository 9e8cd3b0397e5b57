#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse_sdd_items.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace bs::cuda {

namespace {

/// Where two CTAs have half of the depth each: what it takes to wait for each other and exchange
/// the sums of a block column.
constexpr int exchange_cycles = 4500;

/// Cuts strips of one pair, or one strip, into items that are as even as can be.
class StripCutter {
 public:
  StripCutter(const BlockSparseStrips& strips, int block, SddForm form)
      : strips_(strips),
        cols_(warpgroup_sdd_tile(block, form.narrow).sdd_cols(block)),
        block_(block),
        form_(form) {}

  /// Columns of one strip, shared out among the CTAs of a cluster.
  SddItems one(int strip) const {
    const int length = strips_.length(strip), most = form_.ctas * cols_;
    const int count = (length + most - 1) / most;
    SddItems items;
    for (int i = 0; i < count; ++i) {
      for (int r = 0; r < form_.ctas; ++r) {
        const int at = form_.ctas * i + r, of = form_.ctas * count;
        const int first = slice(length, at, of);
        items.shares.push_back({.strip = strip,
                                .first = strips_.offsets[static_cast<size_t>(strip)] + first,
                                .gap = 0,
                                .count = slice(length, at + 1, of) - first,
                                .shared = 0,
                                .same_strip = form_.ctas > 1,
                                .halved = 0});
      }
      weigh(items, i, count);
    }
    return items;
  }

  /// Two strips, one for each CTA: of every item a slice of the columns that both have.
  SddItems pair(int strip) const {
    const int shared = strips_.shared[static_cast<size_t>(strip)];
    const int longer = std::max(strips_.length(strip), strips_.length(strip + 1));
    SddItems items;
    for (int count = (longer + cols_ - 1) / cols_; count > 0; ++count) {
      items = {};
      int widest = 0;
      for (int i = 0; i < count; ++i) {
        const int from = slice(shared, i, count), size = slice(shared, i + 1, count) - from;
        for (int r = 0; r < 2; ++r) {
          // Slices of the others the other way round, so that sums of both differ little.
          const int rest = strips_.length(strip + r) - shared;
          const int first = rest - slice(rest, count - i, count);
          const int end = rest - slice(rest, count - i - 1, count);
          items.shares.push_back({.strip = strip + r,
                                  .first = strips_.offsets[static_cast<size_t>(strip + r)] + from,
                                  .gap = shared + first - (from + size),
                                  .count = size + end - first,
                                  .shared = size,
                                  .same_strip = 0,
                                  .halved = 0});
          widest = std::max(widest, items.shares.back().count);
        }
        weigh(items, i, count);
      }
      if (widest <= cols_) break;
    }
    return items;
  }

 private:
  static int slice(int length, int i, int count) {
    return static_cast<int>(int64_t{length} * i / count);
  }
  /// Notes what the item that was listed last is: number `i` of `count` of its strip.
  void weigh(SddItems& items, int i, int count) const {
    const auto ctas = static_cast<size_t>(form_.ctas);
    items.slices.push_back({i, count});
    items.costs.push_back(sdd_cost(block_, form_, std::span(items.shares).last(ctas)));
  }

  const BlockSparseStrips& strips_;
  int cols_, block_;
  SddForm form_;
};

void append(SddItems& items, const SddItems& more) {
  items.shares.insert(items.shares.end(), more.shares.begin(), more.shares.end());
  items.costs.insert(items.costs.end(), more.costs.begin(), more.costs.end());
  items.slices.insert(items.slices.end(), more.slices.begin(), more.slices.end());
}

}  // namespace

int64_t SddItems::cost() const { return std::accumulate(costs.begin(), costs.end(), int64_t{0}); }

int32_t sdd_cost(int block, SddForm form, std::span<const device::SddShare> shares) {
  // Measured on an H200: L2 hands a multiprocessor a line of 128 bytes in 3.2 cycles, which can
  // take one in 2; a product of 64 x 8 x 64 takes a warpgroup 32 cycles, both beside each other.
  const int a = block == 128 ? 128 : 64;
  int taken = 0, arriving = 0;
  for (const device::SddShare& share : shares) {
    const bool first = &share == shares.data();
    taken += (first || !share.same_strip ? a : 0) + share.count * block;
    if (!first) taken -= share.shared * block;
    arriving = std::max(arriving, a + share.count * block);
  }
  const int cycles = std::max({taken * 16 / (5 * form.ctas), arriving * 2,
                               warpgroup_sdd_tile(block, form.narrow).cols * 4});
  if (form.ctas == 1) return cycles;
  return block < 64 ? cycles * 9 / 8 : cycles * 7 / 6;  // CTAs wait for each other
}

SddItems list_sdd(const BlockSparseStrips& strips, int block, SddForm form) {
  const StripCutter cutter(strips, block, form);
  const auto count = static_cast<int>(strips.offsets.size()) - 1;
  SddItems items;
  for (int strip = 0; strip < count; ++strip) {
    SddItems own = cutter.one(strip);
    if (form.ctas > 1 && strip % strips.list.strips + 1 < strips.list.strips) {
      append(own, cutter.one(++strip));
      SddItems pair = cutter.pair(strip - 1);
      if (pair.cost() <= own.cost()) own = std::move(pair);
    }
    append(items, own);
  }
  return items;
}

SddItems list_sdd_by_depth(const BlockSparseStrips& strips, int64_t steps, int64_t whole,
                           bool narrow) {
  std::vector<device::SddShare> wide, single;
  for (int strip = 0; strip + 1 < static_cast<int>(strips.offsets.size()); ++strip) {
    const int begin = strips.offsets[static_cast<size_t>(strip)], length = strips.length(strip);
    for (int at = 0; at < length; at += 2) {
      const device::SddShare share{.strip = strip,
                                   .first = begin + at,
                                   .gap = 0,
                                   .count = std::min(2, length - at),
                                   .shared = 0,
                                   .same_strip = 0,
                                   .halved = 0};
      (share.count == 2 ? wide : single).push_back(share);
    }
  }
  SddItems items;
  // What L2 hands out is the bound; CTAs of a cluster wait for each other.
  const auto cost = [](int columns) { return (1 + columns) * 128 * 16 / 5 * 9 / 8; };
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

SddItems order_sdd(const SddItems& items, int ctas, int rows, int64_t columns, int workers) {
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
  const auto rank = [&](size_t i) {
    return costs[i] > half ? std::pair(items.slices[i][0] * groups / items.slices[i][1], 0)
                           : std::pair(groups, -costs[i]);
  };
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank(a) < rank(b); });
  SddItems out;
  for (const size_t i : order) {
    const auto first = items.shares.begin() + static_cast<int64_t>(i) * ctas;
    out.shares.insert(out.shares.end(), first, first + ctas);
    out.costs.push_back(costs[i]);
    out.slices.push_back(items.slices[i]);
  }
  return out;
}

}  // namespace bs::cuda
