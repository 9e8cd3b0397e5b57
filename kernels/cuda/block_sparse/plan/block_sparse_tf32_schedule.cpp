#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tf32_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tf32_schedule.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

namespace bs::cuda {

namespace {

/// Cycles a step of each item.
std::vector<int64_t> costs_of(const Tf32SddPlan& plan, int block, const Tf32SddExtent& extent) {
  const int row = tf32_gathered_lines(block, extent.a_along_k);
  const int column = tf32_gathered_lines(block, extent.b_along_k);
  const auto shares = static_cast<size_t>(tf32_gathered_tile(extent.split).shares());
  const std::vector<device::SddShare>& all = plan.strips.shares;
  std::vector<int64_t> costs;
  for (size_t i = 0; i < all.size(); i += shares) {
    int lines = 0;
    for (size_t share = i; share < i + shares; ++share)
      lines += plan.strips.strip_rows * row + all[share].count * column;
    costs.push_back(tf32_gathered_cycles(extent.split, !extent.a_along_k, lines));
  }
  return costs;
}

}  // namespace

bool tf32_gathers_always() { return std::getenv("BS_GATHERED_PRODUCTS") != nullptr; }

Tf32SddPlan plan_tf32_sdd(const Layout& layout, const Tf32SddExtent& extent, int multiprocessors,
                          double memory_rate) {
  constexpr double cycles_a_second = 1.7e9;
  const Tf32Tile tile = tf32_gathered_tile(extent.split);
  const double stage = tf32_gathered_cycles(extent.split, !extent.a_along_k, 0) / cycles_a_second;
  const int window =
      sdd_window(layout.height(), layout.width(), layout.block(), stage, memory_rate);
  Tf32SddPlan plan{gather_sdd(layout, false, tile.n, tile.gathered_columns(), window)};
  std::vector<device::SddShare>& shares = plan.strips.shares;
  if (shares.empty()) return plan;
  const auto together = static_cast<size_t>(tile.shares());
  while (shares.size() % together != 0) {
    shares.push_back(shares.back());
    shares.back().count = 0;
  }
  const std::vector<int64_t> own = costs_of(plan, layout.block(), extent);
  const auto items = static_cast<int64_t>(own.size()) * extent.batch;
  const auto sum = static_cast<double>(std::accumulate(own.begin(), own.end(), int64_t{0}));
  const auto steps = static_cast<double>(extent.steps);
  const auto seconds = [&](double cycles) { return cycles / cycles_a_second; };
  plan.seconds = seconds(sum * static_cast<double>(extent.batch) * steps / multiprocessors);
  if (items > int64_t{most_split_items} * multiprocessors) return plan;
  std::vector<int64_t> costs;
  for (int64_t i = 0; i < extent.batch; ++i) costs.insert(costs.end(), own.begin(), own.end());
  plan.seconds = seconds(steps * static_cast<double>(time_to_finish(costs, multiprocessors)));
  const auto depth = static_cast<int32_t>(extent.steps);
  WorkPieces cut = split_work(std::vector<int32_t>(static_cast<size_t>(items), depth),
                              multiprocessors, tf32_sdd_costs(extent.split, tile.sums()));
  const double mean = sum / static_cast<double>(own.size());
  const double time = seconds(mean * static_cast<double>(cut.time));
  if (!cut.pieces.empty() && time < plan.seconds) {
    plan.split = std::move(cut);
    plan.seconds = time;
  }
  return plan;
}

const Tf32SddSchedule& schedule_tf32_sdd(const Layout& layout, const Tf32SddExtent& extent,
                                         Device device) {
  const uint64_t key =
      uint64_t{3} << 59 | uint64_t{extent.split} << 58 | uint64_t{extent.a_along_k} << 57 |
      uint64_t{extent.b_along_k} << 56 | static_cast<uint64_t>(device.index()) << 50 |
      static_cast<uint64_t>(extent.batch) << 25 | static_cast<uint64_t>(extent.steps);
  const auto& kept = layout.derived<Tf32SddSchedule>(key, [&] {
    const bool always = tf32_gathers_always();
    const double block = layout.block();
    const double products = static_cast<double>(layout.nnz()) * block * block * 32 *
                            static_cast<double>(extent.steps * extent.batch);
    const auto pays = [&](double seconds) {
      return always ||
             tf32_gathering_pays(layout.block(), extent.split, extent.b_along_k, seconds, products);
    };
    Tf32SddSchedule made;
    if (!pays(0)) return made;
    const DeviceProperties& gpu = device_properties(device);
    const Tf32SddPlan plan = plan_tf32_sdd(layout, extent, gpu.multiprocessors, gpu.memory_rate);
    made.pays = pays(plan.seconds);
    if (!made.pays) return made;
    made.shares = DeviceShares(plan.strips.shares, plan.strips, device);
    made.list = made.shares.gathered({}, layout.rows());
    made.works =
        static_cast<int>(plan.strips.shares.size()) / tf32_gathered_tile(extent.split).shares();
    made.split = DevicePieces(plan.split, device);
    made.made = Milestone(current_stream(device));
    return made;
  });
  kept.made.wait(current_stream(device));
  return kept;
}

}  // namespace bs::cuda
