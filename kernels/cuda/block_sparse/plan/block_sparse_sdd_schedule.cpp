// How a launch of sdd shares out its work: the form that is sooner done.
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_gather.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bs::cuda {

namespace {

constexpr double cycles_a_second = 1.7e9, cycles_a_nanosecond = cycles_a_second / 1e9;

/// What items of a form take of the time that their lines and products would: measured on an H100
/// at 1024 to 8192.
double pace(SddForm form) {
  if (form.gathered) return form.narrow ? 1.31 : 1.07;
  return form.narrow ? 1.03 : 1;
}

struct SddPlan {
  SddForm form;
  SddItems items;
  GatheredStrips strips = {};  ///< of the items, where rows are gathered
  bool copies = false;
  WorkPieces split = {};
  double time = 0;  ///< cycles
};

/// Costs of the items of each S of a batch.
std::vector<int64_t> repeated(const std::vector<int32_t>& costs, int64_t batch) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < batch; ++i) all.insert(all.end(), costs.begin(), costs.end());
  return all;
}

/// Which clusters of two CTAs have whole items and which halves of one, so that all end early.
SddPlan plan_sdd_by_depth(const BlockSparseStrips& strips, const SddExtent& extent, int workers) {
  SddPlan best{.form = {.ctas = 2}, .items = {}, .time = std::numeric_limits<double>::infinity()};
  const int64_t batch = std::max<int64_t>(extent.batch, 1);
  const int64_t most = int64_t{most_split_items} * workers / batch;
  // Parts fill the ring at least.
  if (!extent.by_depth || extent.steps < 8 || strips.offsets.back() > 4 * most) return best;
  for (int64_t rounds = 0; rounds <= most_split_items; ++rounds)
    for (const bool narrow : {false, true}) {
      SddItems items = list_sdd_by_depth(strips, extent.steps, rounds * workers / batch, narrow);
      const std::vector<int64_t> costs = repeated(items.costs, extent.batch);
      const auto time =
          static_cast<double>(extent.steps) * static_cast<double>(time_to_finish(costs, workers));
      if (time < best.time) {
        best.items = std::move(items);
        best.time = time;
      }
    }
  return best;
}

/// What pieces of the items of a plan take, in nanoseconds.
SplitCosts costs_of(const SddPlan& plan, int block) {
  const WarpgroupTile tile = warpgroup_sdd_tile(block, plan.form);
  const int64_t sums = int64_t{4} * tile.sdd_rows(block) * tile.sdd_cols(block) * block * block;
  const auto items = static_cast<double>(std::max<size_t>(plan.items.costs.size(), 1));
  const double step = pace(plan.form) * static_cast<double>(plan.items.cost()) / items;
  return sdd_split_costs(static_cast<int>(std::lround(step / cycles_a_nanosecond)), sums);
}

/// No plan with these items is done before.
double least_time(const SddPlan& plan, const SddExtent& extent, int block, int workers) {
  const auto items = static_cast<double>(plan.items.costs.size());
  const double steps =
      pace(plan.form) * static_cast<double>(plan.items.cost()) * static_cast<double>(extent.steps);
  const double ends = items * costs_of(plan, block).tile * cycles_a_nanosecond;
  return (steps + ends) * static_cast<double>(extent.batch) / workers;
}

/// Takes whole items or parts of them, whichever is sooner done, and notes when; but where that is
/// no sooner than `best`, only that.
void time_sdd(SddPlan& plan, const SddExtent& extent, int block, int workers, double best) {
  plan.time = least_time(plan, extent, block, workers);
  const int64_t count = static_cast<int64_t>(plan.items.costs.size()) * extent.batch;
  if (count == 0 || count > int64_t{most_split_items} * workers || plan.time >= best) return;
  const SplitCosts costs = costs_of(plan, block);
  std::vector<int64_t> items = repeated(plan.items.costs, extent.batch);
  const double steps = pace(plan.form) * static_cast<double>(extent.steps);
  for (int64_t& item : items)
    item = std::llround(steps * static_cast<double>(item) + costs.tile * cycles_a_nanosecond);
  plan.time = static_cast<double>(time_to_finish(items, workers));
  WorkPieces cut = split_work(
      std::vector<int32_t>(static_cast<size_t>(count), static_cast<int32_t>(extent.steps)), workers,
      costs);
  const double time = static_cast<double>(cut.time) * cycles_a_nanosecond;
  if (!cut.pieces.empty() && time < plan.time) {
    plan.split = std::move(cut);
    plan.time = time;
  }
}

/// Strips as they lie, an item a CTA.
SddPlan plan_sdd(const BlockSparseStrips& strips, const SddExtent& extent, int block, SddForm form,
                 int multiprocessors, double best) {
  SddPlan plan{.form = form, .items = list_sdd(strips, block, form)};
  if (least_time(plan, extent, block, multiprocessors) < best)
    plan.items = order_sdd(plan.items, std::max(block, 64), extent.columns, multiprocessors);
  time_sdd(plan, extent, block, multiprocessors, best);
  return plan;
}

/// Gathered strips, the rows of which come in so many lines a step.
SddPlan plan_gathered(const GatheredStrips& strips, const SddExtent& extent, int block,
                      SddForm form, int lines, int multiprocessors, double best) {
  SddPlan plan{.form = form, .items = {}};
  plan.items.shares = strips.shares;
  const int cols = warpgroup_sdd_tile(block, form).cols;
  for (const device::SddShare& share : strips.shares)
    plan.items.costs.push_back(sdd_cycles(lines + share.count * block, cols));
  time_sdd(plan, extent, block, multiprocessors, best);
  return plan;
}

/// Cycles that a copy of the strips' operand takes, with the depth along its lines.
double copy_cycles(const SddExtent& extent) {
  constexpr double start = 4e-6, bytes_a_second = 2.8e12;
  const double bytes = 2 * 2 * static_cast<double>(extent.copied);
  return (start + bytes / bytes_a_second) * cycles_a_second;
}

/// What the 128 rows of an item take of L2 a step, in lines of 128 bytes. Lines as short as a block
/// are as many more; those of 64 bytes take .75 of the time of whole ones and those of 32 bytes
/// .55, but where the operand does not stay in L2 as long.
int row_lines(const SddExtent& extent, int block, int64_t l2_bytes) {
  if (extent.along_k || block >= 64) return 128;
  const int lines = 128 * 64 / block;
  const bool stays = extent.copied > 0 && 2 * extent.copied <= l2_bytes;
  return stays ? lines * (block == 32 ? 15 : 11) / 20 : lines;
}

/// Whether items of half the columns of these may be done before `best`.
bool narrow_may_pay(const GatheredStrips& wide, const SddExtent& extent, int block,
                    int multiprocessors, double best) {
  const auto items = static_cast<double>(wide.shares.size());
  // Where items are many, none with fewer columns are needed.
  if (items * static_cast<double>(extent.batch) >= 3 * multiprocessors) return false;
  const SddForm form{.narrow = true, .gathered = true};
  const WarpgroupTile tile = warpgroup_sdd_tile(block, form);
  const double cycles =
      expect_items(wide, tile.sdd_cols(block)) * sdd_cycles(128 + tile.cols, tile.cols);
  const double time = cycles * static_cast<double>(extent.batch * extent.steps) / multiprocessors;
  return .95 * time * pace(form) < best;
}

/// Takes the better one of a plan and those that gather rows.
void try_gathered(SddPlan& chosen, const Layout& layout, const SddExtent& extent,
                  const DeviceProperties& gpu) {
  const int block = layout.block(), multiprocessors = gpu.multiprocessors;
  const int lines = row_lines(extent, block, gpu.l2_bytes);
  const WarpgroupTile wide = warpgroup_sdd_tile(block, {.gathered = true});
  const double seconds =
      pace({.gathered = true}) * sdd_cycles(128 + wide.cols, wide.cols) / cycles_a_second;
  const int64_t height = layout.height(), width = layout.width();
  const int window =
      sdd_window(extent.transposed ? width : height, extent.transposed ? height : width, block,
                 seconds, gpu.memory_rate);
  for (const bool narrow : {false, true}) {
    const SddForm form{.narrow = narrow, .gathered = true};
    GatheredStrips strips = gather_sdd(layout, extent.transposed, form, window);
    SddPlan plan = plan_gathered(strips, extent, block, form, lines, multiprocessors, chosen.time);
    if (lines > 128 && extent.copied > 0) {
      const double copy = copy_cycles(extent), best = std::min(chosen.time, plan.time);
      SddPlan copied =
          plan_gathered(strips, extent, block, form, 128, multiprocessors, best - copy);
      copied.copies = true;
      copied.time += copy;
      if (copied.time < plan.time) plan = std::move(copied);
    }
    const bool better = plan.time < chosen.time;
    const bool last = narrow || !narrow_may_pay(strips, extent, block, multiprocessors,
                                                std::min(plan.time, chosen.time));
    if (better) {
      chosen = std::move(plan);
      chosen.strips = std::move(strips);
    }
    if (last) break;
  }
}

/// The plan that is done first.
SddPlan choose_sdd(const Layout& layout, const BlockSparseStrips& strips, const SddExtent& extent,
                   const DeviceProperties& gpu) {
  const int block = layout.block(), multiprocessors = gpu.multiprocessors;
  SddPlan chosen =
      plan_sdd(strips, extent, block, {}, multiprocessors, std::numeric_limits<double>::infinity());
  const auto weigh = [&](SddPlan plan) {
    if (plan.time < chosen.time) chosen = std::move(plan);
  };
  weigh(plan_sdd(strips, extent, block, {.narrow = true}, multiprocessors, chosen.time));
  if (block == 128) weigh(plan_sdd_by_depth(strips, extent, std::max(1, multiprocessors / 2)));
  if (block < 128) try_gathered(chosen, layout, extent, gpu);
  return chosen;
}

}  // namespace

const SddSchedule& schedule_sdd(const Layout& layout, const BlockSparseStrips& strips,
                                const SddExtent& extent, Device device) {
  const int kind =
      (extent.by_depth ? 1 : 0) + (extent.along_k ? 2 : 0) + (extent.copied > 0 ? 4 : 0);
  const uint64_t key =
      schedule_key(true, extent.transposed, kind, extent.batch, extent.steps, device);
  const auto& kept = layout.derived<SddSchedule>(key, [&] {
    const SddPlan chosen = choose_sdd(layout, strips, extent, device_properties(device));
    SddSchedule made;
    made.form = chosen.form;
    made.copies = chosen.copies;
    made.shares = DeviceShares(chosen.items.shares, chosen.strips, device);
    if (chosen.form.gathered) {
      made.list =
          made.shares.gathered(strips.list, extent.transposed ? layout.cols() : layout.rows());
    } else {
      made.list = strips.list;
      made.columns = strips.columns;
    }
    made.works = static_cast<int>(chosen.items.costs.size());
    made.split = DevicePieces(chosen.split, device);
    made.made = Milestone(current_stream(device));
    return made;
  });
  kept.made.wait(current_stream(device));
  return kept;
}

}  // namespace bs::cuda
