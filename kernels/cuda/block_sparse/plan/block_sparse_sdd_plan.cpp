#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dense.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace bs::cuda {

namespace {

/// A product whose plan is made.
struct Sdd {
  const Layout& layout;
  SddShape shape;
  const Gpu& gpu;
  const Settings& settings;
  const PlanWish& wish;

  bool wants(SddForm form) const { return !wish.form || *wish.form == form; }
  int block() const { return layout.block(); }
  bool split() const { return shape.factors == Factors::split; }
  /// Steps of an item, of a depth of `depth` each.
  int64_t steps(int depth) const { return shape.terms * ceil_div(shape.k, depth); }
  double tiled_time() const {
    const double blocks = static_cast<double>(layout.nnz()) * block() * block();
    const auto products = blocks * static_cast<double>(shape.k * shape.batch * shape.terms);
    return bs::cuda::tiled_time(shape.factors, block(), products, gpu);
  }
  /// Whether items of gathered rows have so few holes, as far as can be told before they are
  /// gathered, that they are done before a dense product, which takes `limit`. They take `least` if
  /// they have none. Unions of 128 gathered rows take a tenth of the time that gathering does, and
  /// where they have nearly all columns, items take 1.3 times as long, at least. Without this,
  /// planning takes 1.4 times as long.
  bool may_gather(bool transposed, double least, double limit) const {
    constexpr double nearly_all = .97, least_holes = 1.3;
    if (least >= limit) return false;
    if (limit == never || least_holes * least < limit) return true;
    const Kept<Strips> strips =
        strips_of(layout, {.transposed = transposed, .side = 128 / block(), .gathered = true});
    const int64_t cols = transposed ? layout.rows() : layout.cols();
    return static_cast<double>(strips->columns()) <=
           nearly_all * static_cast<double>(int64_t{strips->count} * cols);
  }
  /// Whether so many items are ever cut, or looked at one by one.
  bool few(int64_t items) const { return items <= int64_t{most_split_items} * gpu.multiprocessors; }
};

/// The items of one S, which take so many nanoseconds a step.
class Items {
 public:
  Items(const Sdd& d, std::vector<double> costs, int64_t steps, int64_t sums)
      : d_(d), costs_(std::move(costs)), steps_(steps) {
    const auto count = static_cast<double>(std::max<size_t>(costs_.size(), 1));
    sum_ = std::accumulate(costs_.begin(), costs_.end(), 0.0);
    of_ = sdd_split_costs(nanoseconds(sum_ / count), sums, d.shape.factors, d.gpu);
    end_ = d.shape.factors == Factors::half ? of_.tile : 0;  // steps of f32 are told with the end
  }
  /// All S are not done before.
  double least_time() const {
    const double ends = static_cast<double>(costs_.size()) * end_;
    return (sum_ * static_cast<double>(steps_) + ends) * static_cast<double>(d_.shape.batch) /
           d_.gpu.multiprocessors;
  }
  /// When they are; and how items are cut, where that is sooner, and before `limit`.
  std::pair<double, WorkPieces> schedule(double limit = never) const {
    const auto count = static_cast<int64_t>(costs_.size()) * d_.shape.batch;
    if (count == 0 || !d_.few(count)) return {least_time(), {}};
    const int workers = d_.gpu.multiprocessors;
    std::vector<int64_t> whole;
    whole.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < d_.shape.batch; ++i)
      for (const double cost : costs_)
        whole.push_back(std::llround(static_cast<double>(steps_) * cost) + end_);
    const auto time = static_cast<double>(time_to_finish(whole, workers));
    WorkPieces cut = split_work(std::vector<int32_t>(whole.size(), static_cast<int32_t>(steps_)),
                                workers, of_, std::min(time, limit));
    if (cut.pieces.empty()) return {time, {}};
    return {static_cast<double>(cut.time), std::move(cut)};
  }

 private:
  const Sdd& d_;
  std::vector<double> costs_;
  int64_t steps_;
  double sum_;
  SplitCosts of_;
  int end_;  ///< of an item that is whole
};

/// 16-bit sdd on wgmma.
class WarpgroupSddPlanner {
 public:
  /// @param[in] transposed strips of B's columns
  /// @param[in] along_k whether the operand of the strips has the depth along its lines
  /// @param[in] copied else, elements of a copy of it that has; 0: there can be none
  /// @param[in] limit of the time of a plan
  WarpgroupSddPlanner(const Sdd& d, bool transposed, bool along_k, int64_t copied, double limit)
      : d_(d),
        transposed_(transposed),
        along_k_(along_k),
        copied_(copied),
        steps_(d.steps(64)),
        limit_(limit) {
    best_.time = limit;
  }

  /// The plan that is done first: strips as they lie or gathered ones, in wide or narrow tiles.
  SddPlan plan() {
    const StripShape shape{.transposed = transposed_, .side = tile({}).sdd_rows(d_.block())};
    const Kept<Strips> strips = strips_of(d_.layout, shape);
    for (const bool narrow : {false, true}) try_lying(*strips, {.narrow = narrow});
    if (d_.block() < 128 && (!d_.wish.form || d_.wish.form->gathered)) try_gathered();
    best_.path = Path::warpgroup;
    best_.transposed = transposed_;
    best_.strips = shape;
    if (gathered_.list) best_.gathered = gathered_.list();
    return std::move(best_);
  }

 private:
  WarpgroupTile tile(SddForm form) const { return warpgroup_sdd_tile(d_.block(), form); }
  Items timed(std::vector<double> costs, SddForm form) const {
    const int block = d_.block(), places = tile(form).sdd_rows(block) * tile(form).sdd_cols(block);
    return {d_, std::move(costs), steps_, int64_t{4} * places * block * block};
  }

  /// Makes a plan of these items, whole or cut, if it is done before the best one so far. `extra`
  /// is the time that it takes before. Returns whether it is.
  bool weigh(const SddItems& items, SddForm form, double extra) {
    const Items all = timed(items.costs, form);
    if (all.least_time() + extra >= best_.time || !d_.wants(form)) return false;
    auto [time, split] = all.schedule(best_.time - extra);
    if (time + extra >= best_.time) return false;
    best_.form = form;
    best_.ranges = items.ranges;
    best_.split = std::move(split);
    best_.turns_a = best_.turns_b = false;
    best_.time = time + extra;
    return true;
  }

  void try_lying(const Strips& strips, SddForm form) {
    const WarpgroupTile of = tile(form);
    const SddItems items = list_sdd(whole_ranges(strips), of.sdd_rows(d_.block()) * d_.block(),
                                    d_.block(), of, d_.gpu);
    if (timed(items.costs, form).least_time() >= best_.time) return;
    const int64_t columns = transposed_ ? d_.layout.height() : d_.layout.width();
    weigh(order_sdd(items, std::max(d_.block(), 64), columns, d_.gpu.multiprocessors), form, 0);
  }

  /// What the rows of an item of gathered ones take of L2 a step, in lines of 128 bytes: more where
  /// lines are as short as a block.
  int row_lines() const {
    return static_cast<int>(gathered_rows * (along_k_ ? 1 : short_lines(2 * d_.block())));
  }

  void try_gathered() {
    const int cols = tile({.gathered = true}).cols;
    const double step = sdd_step(gathered_rows + cols, cols, d_.gpu);  // of an item without a hole
    const double blocks = static_cast<double>(d_.layout.nnz()) * d_.block() * d_.block();
    const double share = static_cast<double>(d_.shape.batch * steps_) / d_.gpu.multiprocessors;
    if (!d_.may_gather(transposed_, blocks / (gathered_rows * cols) * step * share, limit_)) return;
    const int64_t height = d_.layout.height(), width = d_.layout.width();
    const int window = sdd_window(transposed_ ? width : height, transposed_ ? height : width,
                                  d_.block(), step, d_.gpu);
    std::optional<GatheredItems> strips =
        gather_sdd(d_.layout, transposed_, gathered_rows, cols, window,
                   {.first = gathered_rows,
                    .column = static_cast<double>(d_.block()),
                    .most = best_.time / (share * d_.gpu.line())});
    if (strips) try_strips(*std::move(strips));
  }

  /// Narrow items are halves of the wide ones' columns.
  void try_strips(GatheredItems strips) {
    const int lines = row_lines();
    const double copying = copy_time(2 * static_cast<double>(copied_), d_.gpu);
    bool better = false;
    for (const SddForm form : {SddForm{.gathered = true}, {.narrow = true, .gathered = true}}) {
      SddItems items = list_sdd(strips.ranges, lines, d_.block(), tile(form), d_.gpu);
      better = weigh(items, form, 0) || better;
      if (lines == gathered_rows || copied_ == 0) continue;
      items.costs = sdd_costs(items.ranges, gathered_rows, d_.block(), tile(form), d_.gpu);
      if (weigh(items, form, copying))
        (transposed_ ? best_.turns_b : best_.turns_a) = better = true;
    }
    if (better) gathered_ = std::move(strips);
  }

  static constexpr int gathered_rows = 128;  // of an item

  const Sdd& d_;
  const bool transposed_, along_k_;
  const int64_t copied_, steps_;
  const double limit_;
  SddPlan best_;
  GatheredItems gathered_;  // of it
};

/// @param[in] limit of its time, which the plan has where none is sooner done
bool plan_warpgroup(const Sdd& d, double limit, SddPlan& plan) {
  const SddShape& x = d.shape;
  if (x.factors != Factors::half || d.gpu.capability != 90 || d.block() < 16 || x.k == 0)
    return false;
  // The gathered operand should have the depth along its lines, or lines are as short as a block.
  // Where only A has that, strips are of B's columns. Where neither has, B is copied.
  const bool narrow = d.block() < 64 && !x.b_along_k;
  const bool transposed = narrow && x.a_along_k && !x.epilogue;
  const bool turns_b = narrow && !transposed && x.b_turnable > 0;
  const Reach& reach = turns_b ? x.b_turned : x.lying;
  if (!reach.copy_engine) return false;
  const bool along_k = transposed ? x.b_along_k : x.a_along_k;
  const bool reached = (transposed ? x.b_turned : x.a_turned).copy_engine;
  const int64_t copied = along_k || !reached ? 0 : transposed ? x.b_turnable : x.a_turnable;
  plan = WarpgroupSddPlanner(d, transposed, along_k, copied, limit).plan();
  plan.turns_b = plan.turns_b || turns_b;
  return fits_int(x.batch * plan.items());
}

/// Of blocks of 16 and 32, rows of which are gathered, where that is sooner done than on mma.sync.
bool plan_tf32_gathered(const Sdd& d, double limit, SddPlan& plan) {
  const SddShape& x = d.shape;
  const int block = d.block();
  const Tf32Tile tile = tf32_gathered_tile(d.split());
  const double tiled = d.tiled_time();
  const auto pays = [&](double time) { return d.settings.gathered_products || time < tiled; };
  // No plan is done before, were every block of every item there.
  const double step = tf32_step(tile, tile.n + tile.columns(), d.gpu);
  const double least = static_cast<double>(d.layout.nnz() * block * block) / tile.n /
                       tile.columns() * step * static_cast<double>(d.steps(32) * x.batch) /
                       d.gpu.multiprocessors;
  if (x.epilogue || d.layout.nnz() == 0 || !pays(least) || !d.may_gather(false, least, limit))
    return false;
  const int window = sdd_window(d.layout.height(), d.layout.width(), block, step, d.gpu);
  const GatheredItems items = *gather_sdd(d.layout, false, tile.n, tile.gathered_columns(), window);
  plan = {.path = Path::tf32, .ranges = items.ranges, .together = tile.ranges()};
  const auto together = static_cast<size_t>(plan.together);
  while (plan.ranges.size() % together != 0) {
    plan.ranges.push_back(plan.ranges.back());
    plan.ranges.back().count = 0;
  }
  const double row = x.a_along_k ? 1 : short_lines(4 * block);
  const double column = x.b_along_k ? 1 : short_lines(4 * block);
  std::vector<double> costs;
  for (size_t i = 0; i < plan.ranges.size(); i += together) {
    double lines = 0;
    for (size_t range = i; range < i + together; ++range)
      lines += tile.n * row + plan.ranges[range].count * block * column;
    costs.push_back(tf32_step(tile, lines, d.gpu));
  }
  std::tie(plan.time, plan.split) = Items(d, costs, d.steps(32), tile.sums()).schedule();
  if (!pays(plan.time) || !fits_int(x.batch * plan.items())) return false;
  plan.gathered = items.list();
  return true;
}

bool plan_tf32(const Sdd& d, double limit, SddPlan& plan) {
  const SddShape& x = d.shape;
  const int block = d.block();
  const bool f32 = x.factors == Factors::tf32 || d.split();
  if (!f32 || d.gpu.capability != 90 || x.k == 0 || !x.lying.copy_engine) return false;
  if (tf32_gathers(block)) return plan_tf32_gathered(d, limit, plan);
  // As dsd: of a tile's 256 columns few would be used where the longest row has few.
  if (block < 32 || int64_t{d.layout.max_row()} * block < 192) return false;
  const Tf32Tile tile = tf32_tile(block, d.split(), false);
  plan = {.path = Path::tf32, .strips = {.side = 1}};
  plan.ranges = cut_ranges(whole_ranges(*strips_of(d.layout, plan.strips)), tile.columns() / block);
  const int slabs = block / tile.n;  // of a block's rows, each an item
  std::vector<double> costs;
  for (const device::SddRange& range : plan.ranges)
    costs.insert(costs.end(), static_cast<size_t>(slabs),
                 tf32_step(tile, tile.n + range.count * block, d.gpu));
  const int64_t items = x.batch * static_cast<int64_t>(costs.size());
  std::tie(plan.time, plan.split) = Items(d, costs, d.steps(32), tile.sums()).schedule();
  return fits_int(items);
}

void plan_tiled(const Sdd& d, SddPlan& plan) {
  const SddShape& x = d.shape;
  const int block = d.block();
  plan = {.turns_b = x.b_turnable > 0 && reads_often(d.layout, x.factors, false), .cols = 64};
  plan.vectors = (plan.turns_b ? x.b_turned : x.lying).vectors;
  if (!plan.vectors) return;
  // Rows may be shorter than tiles are wide. All tiles take the same time, so rounds of them count.
  const LayoutView v = d.layout.view(Device::cpu());
  const int size = bytes_of(x.factors), workers = d.gpu.multiprocessors;
  double soonest = never;
  for (int cols = widest_tile(size, block, d.split()); cols >= 64; cols /= 2) {
    const BlockSparseTile tile = block_sparse_tile(size, block, d.split(), cols);
    int64_t tiles = 0;
    for (int i = 0; i < v.heads * v.rows; ++i)
      tiles += ceil_div(int64_t{v.row_offsets[i + 1] - v.row_offsets[i]} * block, cols);
    tiles *= x.batch * ceil_div(block, tile.rows);
    const TilePace pace =
        tile_pace(tile, x.factors, block, std::max(ceil_div(tiles, workers), int64_t{1}), d.gpu);
    const auto rounds = static_cast<double>(ceil_div(tiles, int64_t{pace.resident} * workers));
    const double time = rounds * pace.step / std::max(tile.depth, block);
    if (time >= soonest) continue;
    soonest = time;
    plan.cols = cols;
  }
}

}  // namespace

SddPlan plan_sdd(const Layout& layout, const SddShape& shape, const Gpu& gpu,
                 const Settings& settings, const PlanWish& wish) {
  const Sdd d{layout, without_large_copies(shape, gpu), gpu, settings, wish};
  SddPlan plan;
  if (!settings.portable_products && !wish.portable) {
    if (wish.dense == true) {
      const Path path = dense_sdd_possible(layout, shape, gpu);
      if (path != Path::tiled) return {.path = path};
    }
    auto [path, limit] = dense_sdd_time(layout, shape, gpu);
    if (wish.dense == false) limit = never;
    const bool fast = plan_warpgroup(d, limit, plan) || plan_tf32(d, limit, plan);
    if (limit < never && limit <= (fast ? plan.time : d.tiled_time())) return {.path = path};
    if (fast) return plan;
  }
  plan_tiled(d, plan);
  return plan;
}

SddShape planned_shape(const Layout& layout, SddShape x, const Gpu& gpu) {
  if (x.k == 0) return x;
  // Parts are of whole steps, so where items may be cut there must be as many.
  const int64_t depth = x.factors == Factors::half ? 64 : 32;
  constexpr double widest_item = 256 * 256;
  const double elements = static_cast<double>(layout.nnz()) * layout.block() * layout.block();
  const double items = elements * static_cast<double>(x.batch) / widest_item;
  const bool many = items > static_cast<double>(most_split_items) * gpu.multiprocessors;
  const auto octave = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(x.k)));
  const int64_t planned = round_up(x.k, many ? std::max(depth, octave / 8) : depth);
  // Copies are of whole lines of the depth.
  x.a_turnable = x.a_turnable / x.k * planned;
  x.b_turnable = x.b_turnable / x.k * planned;
  x.k = planned;
  return x;
}

}  // namespace bs::cuda
