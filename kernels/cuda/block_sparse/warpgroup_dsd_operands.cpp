#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/lib/cuda/launch.h>

namespace bs::cuda {

DsdGroups dsd_groups(const DsdProblem& p, int rows, int cols, Device device) {
  const RowGroups& groups = row_groups_of(*p.pattern, p.transposed, rows);
  const StripUse use{.block = p.layout.block,
                     .by_columns = p.c.col != 1,
                     .times = p.batch.numel() / p.layout.heads * ceil_div(p.n, cols),
                     .workers = device_properties(device).multiprocessors};
  const bool pay = groups_pay(groups, use);
  return {.gathered = pay ? &groups : nullptr,
          .columns = pay ? gathered_columns(groups, use) : groups.neighbours,
          .longest = groups.longest,
          .times = use.times};
}

const BlockSparseStrips& dsd_strips(const DsdProblem& p, int rows, int cols, Device device,
                                    bool pairs) {
  const RowGroups* const groups =
      rows > 1 && !p.sums_heads() ? dsd_groups(p, rows, cols, device).gathered : nullptr;
  return strips_of(*p.pattern, p.transposed, rows, device, groups, pairs);
}

DsdExtent dsd_extent(const DsdProblem& p, const BlockSparseStrips& strips, const DsdTiling& tiling,
                     int element) {
  const int64_t tiles = ceil_div(p.n, tiling.cols) * tiling.parts;
  return {.transposed = p.transposed,
          .cols = tiling.cols,
          .columns = p.batch.numel() * tiles,
          .products = p.sum.numel(),
          .tiles = tiles,
          .sums_heads = p.sums_heads(),
          .element = element,
          .rows = strips.side,
          .gathered = strips.gathered,
          .in_parts = tiling.in_parts,
          .costs = tiling.costs};
}

DsdWork describe_dsd(const Tensor& b, const DsdProblem& p, const Axes& axes,
                     const BlockSparseStrips& strips, const DenseMap& values,
                     const DsdTiling& tiling, device::WarpgroupDsdParams& params) {
  const int block = p.layout.block, element = static_cast<int>(size_of(b.dtype()));
  const int line = 128 / element;  // of shared memory
  const std::array<int64_t, 3> b_strides = axes.strides(p.batch, 1, p.sum, 1);
  const bool pieces = !tiling.b_along_k && p.n % line == 0 && b_strides[2] == 0;
  const auto map_b = [&](int depth) {
    DenseMap map = tiling.b_along_k
                       ? DenseMap(b, p.k(), p.n, p.b.col, depth, std::min(256, tiling.cols))
                       : DenseMap(b, pieces ? line : p.n, p.k(), p.b.row, line, depth);
    if (pieces) map.add(p.n / line, line, tiling.cols / line);
    map.add_axes(axes, b_strides, pieces ? 2 : 3, params.b_steps);
    return map;
  };
  const DenseMap b_map = map_b(tiling.depth);
  const DsdExtent extent = dsd_extent(p, strips, tiling, element);
  const int64_t items = extent.columns * strips.list.strips;
  if (!b_map.fit || !values.fit || !fits_int(items) || !extent.fits()) return {};

  const DsdSchedule& schedule = schedule_dsd(*p.pattern, strips, extent, b.device());
  params.values = values.encode("dsd");
  params.b = b_map.encode("dsd");
  if (tiling.pairs) params.b_pairs = map_b(2 * tiling.depth).encode("dsd");
  params.list = strips.list;
  params.lists = list_memory(strips.lists, strips.columns, schedule.split.packed);
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.value_steps = steps_of(axes.strides(p.batch, 0, p.sum, 0), block * block);
  params.head_steps = steps_of(axes.strides(p.batch, 3, p.sum, 2), 1);
  params.b_pieces = pieces ? 0 : tiling.cols / line;
  params.tiles = static_cast<int>(extent.tiles);
  params.columns = static_cast<int>(extent.columns);
  params.order = schedule.order;
  params.m = p.block_rows() * block;
  params.n = static_cast<int>(p.n);
  return {&schedule, items};
}

}  // namespace bs::cuda
