#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dense.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dsd_order.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

namespace bs::cuda {

namespace {

/// More tiles of mma.sync than these are not worth a list: of so many even the longest is little of
/// what a multiprocessor has to do.
constexpr int64_t most_listed_tiles = 8192;

/// A product whose plan is made.
struct Dsd {
  const Layout& layout;
  DsdShape shape;
  const Gpu& gpu;
  const Settings& settings;
  const PlanWish& wish;

  bool portable() const { return settings.portable_products || wish.portable; }
  int block() const { return layout.block(); }
  int64_t block_rows() const { return shape.transposed ? layout.cols() : layout.rows(); }
  bool split() const { return shape.factors == Factors::split; }
};

/// What strips take, in columns of unions: of gathered rows, lines as short as a block besides, as
/// many a stage as a tile has columns, where C has its rows side by side.
int64_t taken_columns(const Dsd& d, const Strips& strips) {
  const int64_t short_lines =
      d.shape.c_by_columns && strips.shape.gathered ? 128 / d.block() - 2 : 0;
  return strips.columns() + int64_t{strips.heads} * strips.count * short_lines * (64 / d.block());
}

/// Strips of this shape, with the rows gathered where that takes less.
Kept<Strips> sooner_strips(const Dsd& d, StripShape shape) {
  Kept<Strips> neighbours = strips_of(d.layout, shape);
  if (shape.side == 1 || d.shape.sums_heads) return neighbours;
  shape.gathered = true;
  Kept<Strips> gathered = strips_of(d.layout, shape);
  return taken_columns(d, *gathered) < neighbours->columns() ? std::move(gathered)
                                                             : std::move(neighbours);
}

/// @param[in] slabs of a block's rows, each an item
DsdExtent extent_of(const Dsd& d, int cols, int slabs = 1) {
  const int64_t tiles = ceil_div(d.shape.n, cols) * slabs;
  return {.cols = cols,
          .columns = d.shape.batch * tiles,
          .products = d.shape.terms,
          .tiles = tiles,
          .sums_heads = d.shape.sums_heads,
          .element = bytes_of(d.shape.factors),
          .in_parts = d.split()};
}

SplitCosts warpgroup_costs(const Dsd& d, int cols) {
  return split_costs(warpgroup_dsd_step(cols, d.gpu), int64_t{128} * cols * 4, d.gpu);
}

StripShape dsd_strips(const Dsd& d, int side, bool pairs = false) {
  return {.transposed = d.shape.transposed, .side = side, .pairs = pairs};
}

/// The columns of the tile that is soonest done: fewer than could be filled where there are few
/// items, or some of them are long.
int soonest_cols(const Dsd& d, bool pairs) {
  const int widest = warpgroup_dsd_tile(d.shape.n).cols, side = WarpgroupTile::dsd_rows(d.block());
  const int workers = d.gpu.multiprocessors;
  const int64_t items =
      ceil_div(d.block_rows(), side) * d.shape.batch * ceil_div(d.shape.n, widest);
  int64_t soonest = std::numeric_limits<int64_t>::max();
  int best = widest;
  if (d.wish.cols > 0) return std::min(d.wish.cols, widest);
  if (widest == 64 || items > 2 * workers) return widest;
  const Kept<Strips> strips = sooner_strips(d, dsd_strips(d, side, pairs));
  for (int cols = widest; cols >= 64; cols /= 2) {
    const int64_t time = split_work(dsd_items(*strips, d.block(), extent_of(d, cols)), workers,
                                    warpgroup_costs(d, cols))
                             .rated_time();
    if (time >= soonest) continue;
    soonest = time;
    best = cols;
  }
  return best;
}

bool choose_warpgroup(const Dsd& d, DsdPlan& plan) {
  const int block = d.block();
  const bool turns =
      block == 16 && d.shape.turnable;  // short lines take as long as ones of 128 bytes
  const Reach& reach = turns ? d.shape.turned : d.shape.lying;
  if (d.shape.factors != Factors::half || d.gpu.capability != 90 || block < 16 ||
      d.layout.nnz() == 0 || !reach.copy_engine)
    return false;
  const bool pairs = block == 32 && d.shape.b_along_k;  // are whole lines of B
  const int side = WarpgroupTile::dsd_rows(block), cols = soonest_cols(d, pairs);
  if (!fits_int(extent_of(d, cols).columns * ceil_div(d.block_rows(), side))) return false;
  plan = {.path = Path::warpgroup,
          .turns = turns,
          .strips = sooner_strips(d, dsd_strips(d, side, pairs))->shape,
          .cols = cols};
  return true;
}

/// Strips of a tile's block rows, times tiles of columns of all C.
int64_t items_of(const Dsd& d, const Tf32Tile& tile) {
  return ceil_div(d.block_rows(), tile.rows) * d.shape.batch * ceil_div(d.shape.n, tile.columns());
}

/// Whether so many items keep enough multiprocessors busy.
bool fills(int64_t items, int workers) { return 4 * items >= int64_t{3} * workers; }

/// A step of f32 on wgmma, of a depth of 64, where so much of the rows has blocks.
double tf32_dsd_step(const Tf32Tile& tile, const Gpu& gpu, double filled = 1) {
  return 2 * tf32_step(tile, filled * tile.n + tile.columns(), gpu, filled);
}

/// Whether tiles of four block rows of 32 are sooner done than of two, where they fill the GPU.
bool large_pays(const Dsd& d, int workers) {
  if (d.split()) return false;
  if (d.block() != 32 || d.shape.sums_heads) return false;
  const Tf32Tile two = tf32_tile(32, false, false), four = tf32_tile(32, false, true);
  const auto time = [&](const Tf32Tile& tile) {
    const Kept<Strips> strips = sooner_strips(d, dsd_strips(d, tile.rows));
    return static_cast<double>(taken_columns(d, *strips)) * tf32_dsd_step(tile, d.gpu);
  };
  return fills(items_of(d, four), workers) && time(four) < time(two);
}

Tf32Tile tf32_tile_of(const Dsd& d, bool large) { return tf32_tile(d.block(), d.split(), large); }

bool choose_tf32(const Dsd& d, DsdPlan& plan) {
  const int block = d.block();
  const bool f32 = d.shape.factors == Factors::tf32 || d.split();
  // Instructions for fewer columns than 32 are slower than mma.sync; and of a tile's 256 columns
  // few would be used where there are few.
  if (!f32 || d.gpu.capability != 90 || block < 32 || d.shape.n < 192 || d.layout.nnz() == 0 ||
      !d.shape.lying.copy_engine)
    return false;
  const int workers = d.settings.gathered_products ? 1 : d.gpu.multiprocessors;
  const bool large = large_pays(d, workers);
  const Tf32Tile tile = tf32_tile_of(d, large);
  if (tile.rows == 2 && !fills(items_of(d, tile), workers)) return false;
  if (!fits_int(items_of(d, tile) * std::max(1, block / tile.n))) return false;
  plan = {.path = Path::tf32,
          .strips = sooner_strips(d, dsd_strips(d, tile.rows))->shape,
          .large = large,
          .cols = tile.columns()};
  return true;
}

/// What the items of strips are of, and what they take: of a plan on wgmma.
struct OfStrips {
  DsdExtent extent;
  SplitCosts costs;
};
OfStrips of_strips(const Dsd& d, const DsdPlan& plan) {
  if (plan.path == Path::warpgroup) return {extent_of(d, plan.cols), warpgroup_costs(d, plan.cols)};
  const Tf32Tile tile = tf32_tile_of(d, plan.large);
  return {extent_of(d, plan.cols, std::max(1, d.block() / tile.n)),
          split_costs(nanoseconds(tf32_dsd_step(tile, d.gpu)), tile.sums(), d.gpu)};
}

/// What a plan takes, but for where its items begin and end.
double filled_time(const Dsd& d, const DsdPlan& plan) {
  const DsdShape& x = d.shape;
  const int64_t depth = x.transposed ? d.layout.height() : d.layout.width();
  const double block = d.block(), blocks = static_cast<double>(d.layout.nnz());
  const double turning =
      plan.turns ? copy_time(static_cast<double>(depth * x.n * bytes_of(x.factors)), d.gpu) : 0;
  if (plan.path == Path::tiled)
    return turning + tiled_time(x.factors, d.block(),
                                blocks * block * block * static_cast<double>(x.n), d.gpu);
  const OfStrips of = of_strips(d, plan);
  const double columns = strips_of(d.layout, plan.strips)->offsets.back();
  const double filled = blocks / std::max(columns * plan.strips.side, 1.0);
  double step = of.costs.step;
  if (plan.path == Path::tf32) {  // passes over blocks that are not there
    step = tf32_dsd_step(tf32_tile_of(d, plan.large), d.gpu, filled);
  } else {  // the lines of blocks are as short as these are
    const double more = 128 * (short_lines(2 * d.block()) * filled - 1);
    step += std::max(more, 0.0) * d.gpu.line();
  }
  return turning + columns * block / 64 * static_cast<double>(of.extent.columns) * step /
                       d.gpu.multiprocessors;
}

/// Shares the items of strips out: cut where that ends sooner, else in some order.
void schedule(const Dsd& d, DsdPlan& plan) {
  const OfStrips of = of_strips(d, plan);
  const Kept<Strips> strips = strips_of(d.layout, plan.strips);
  const int workers = d.gpu.multiprocessors, count = strips->count;
  if (count * of.extent.columns <=
      std::min(int64_t{most_split_items} * workers, int64_t{most_listed_items}))
    plan.split = split_work(dsd_items(*strips, d.block(), of.extent), workers, of.costs);
  plan.order = plan.split.pieces.empty() ? order_dsd(d.layout, *strips, of.extent, d.gpu)
                                         : all_strips(count, of.extent.columns);
}

/// @param[in] turns whether B is copied first
/// @param[in] cuts whether tiles may be cut
void plan_tiled(const Dsd& d, bool turns, bool cuts, DsdPlan& plan) {
  const DsdShape& x = d.shape;
  const int size = bytes_of(x.factors), block = d.block(), workers = d.gpu.multiprocessors;
  plan = {.turns = turns};
  const int64_t lines = x.batch * d.block_rows();
  plan.cols = 64;
  plan.vectors = (plan.turns ? x.turned : x.lying).vectors;
  if (plan.vectors) plan.cols = soonest_tile(size, block, d.split(), x.n, lines, workers);
  const BlockSparseTile tile = block_sparse_tile(size, block, d.split(), plan.cols);
  const TileCounts grid{ceil_div(block, tile.rows), ceil_div(x.n, tile.cols)};
  const int64_t tiles = lines * grid.rows * grid.cols;
  if (!cuts || tiles > most_listed_tiles) return;
  const TilePace pace =
      tile_pace(tile, x.factors, block, std::max(ceil_div(tiles, workers), int64_t{1}), d.gpu);
  const SplitCosts costs =
      split_costs(pace.step, int64_t{tile.rows} * tile.cols * (size == 8 ? 8 : 4), d.gpu, 1);
  plan.split = split_in_order(tile_steps(d.layout, x, sorted_lines(d.layout, x.transposed),
                                         std::max(1, tile.depth / block), grid),
                              pace.resident * workers, costs);
}

}  // namespace

std::vector<int32_t> sorted_lines(const Layout& layout, bool transposed) {
  const LayoutRows from(layout.view(Device::cpu()), transposed);
  std::vector<int32_t> blocks(static_cast<size_t>(from.rows)), lines(blocks.size());
  for (int i = 0; i < from.heads * from.rows; ++i)
    blocks[static_cast<size_t>(i % from.rows)] += from.offsets[i + 1] - from.offsets[i];
  std::iota(lines.begin(), lines.end(), 0);
  std::ranges::stable_sort(lines, std::greater{},
                           [&](int32_t line) { return blocks[static_cast<size_t>(line)]; });
  return lines;
}

std::vector<int32_t> tile_steps(const Layout& layout, const DsdShape& x,
                                const std::vector<int32_t>& lines, int of_step,
                                const TileCounts& grid) {
  const LayoutRows from(layout.view(Device::cpu()), x.transposed);
  const int ways = x.sums_heads ? from.heads : 1;  // heads whose lines are summed
  std::vector<int32_t> all;
  for (int64_t item = 0; item < x.batch; ++item) {
    const auto first = x.sums_heads ? 0 : static_cast<int>(item % from.heads);
    std::vector<int32_t> lengths;
    for (const int32_t line : lines) {
      int64_t steps = 0;
      for (int head = first; head < first + ways; ++head) {
        const int32_t* const at = from.offsets + head * from.rows + line;
        steps += ceil_div(at[1] - at[0], of_step);
      }
      lengths.insert(lengths.end(), static_cast<size_t>(grid.rows),
                     static_cast<int32_t>(steps * (x.terms / ways)));
    }
    for (int64_t tile = 0; tile < grid.cols; ++tile)
      all.insert(all.end(), lengths.begin(), lengths.end());
  }
  return all;
}

DsdPlan plan_dsd(const Layout& layout, const DsdShape& shape, const Gpu& gpu,
                 const Settings& settings, const PlanWish& wish) {
  const Dsd d{layout, without_large_copies(layout, shape, gpu), gpu, settings, wish};
  DsdPlan plan;
  const bool fast = !d.portable() && (choose_warpgroup(d, plan) || choose_tf32(d, plan));
  if (!fast) plan.turns = reads_often(layout, shape.factors, shape.transposed) && d.shape.turnable;
  if (!d.portable() && wish.dense != false &&
      (dense_dsd_time(layout, shape, gpu) < filled_time(d, plan) ||
       (wish.dense == true && dense_dsd_possible(layout, shape, gpu)))) {
    plan_tiled(d, false, false, plan);  // for what is not finite
    plan.path = Path::dense;
  } else if (fast) {
    schedule(d, plan);
  } else {
    // What is asked for may be a plan for more columns than there are, with no list of tiles.
    plan_tiled(d, plan.turns, !wish.portable, plan);
  }
  return plan;
}

DsdShape planned_shape(const Layout& layout, DsdShape x, const Gpu& gpu, const Settings& settings) {
  constexpr int64_t narrowest = 64;  // of tiles: those that n fills, and whether the last is full
  const int64_t rows = x.transposed ? layout.width() : layout.height();
  const bool many =
      ceil_div(rows, 128) * x.batch * (x.n / 512) > int64_t{most_split_items} * gpu.multiprocessors;
  // Items of wgmma that are as many are never cut, and their order is told for any number.
  const bool wgmma = !settings.portable_products && gpu.capability == 90 && layout.nnz() > 0 &&
                     layout.block() >= (x.factors == Factors::half ? 16 : 32) &&
                     x.factors != Factors::f64 && x.lying.copy_engine && x.turned.copy_engine;
  const auto octave = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(x.n)));
  const int64_t step = many && wgmma ? std::max(narrowest, octave / 8) : narrowest;
  if (x.n % step != 0) x.n = x.n / step * step + step - 1;
  return x;
}

device::WorkOrder order_of_columns(const device::WorkOrder& order, int64_t planned,
                                   int64_t columns) {
  if (planned == columns || order.groups == 0) return order;
  const int64_t last = planned - int64_t{order.groups - 1} * order.group;
  if (order.groups == 1 || last >= columns)
    return {.first = order.first, .group = static_cast<int>(columns), .groups = 1};
  return {.first = order.first,
          .group = order.group,
          .groups = static_cast<int>((columns - last) / order.group) + 1};
}

}  // namespace bs::cuda
