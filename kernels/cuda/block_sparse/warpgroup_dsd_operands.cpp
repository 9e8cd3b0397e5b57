#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/lib/cuda/launch.h>

#include <algorithm>

namespace bs::cuda {

int64_t describe_dsd(const Tensor& b, const DsdProblem& p, const DsdWork& work,
                     const DeviceStrips& strips, const DenseMap& values, const DsdTiling& tiling,
                     device::WarpgroupDsdParams& params) {
  const DsdPlan& plan = work.plan;
  const int block = p.layout.block, cols = plan.cols;
  const int line = 128 / static_cast<int>(size_of(b.dtype()));  // of shared memory
  const Axes axes(p.batch, p.sum);
  const std::array<int64_t, 3> b_strides = axes.strides(p.batch, 1, p.sum, 1);
  const bool along_k = p.b.col != 1;
  const bool boxes = !along_k && p.n % line == 0 && b_strides[2] == 0;
  const auto map_b = [&](int depth) {
    DenseMap map = along_k ? DenseMap(b, p.k(), p.n, p.b.col, depth, std::min(256, cols))
                           : DenseMap(b, boxes ? line : p.n, p.k(), p.b.row, line, depth);
    if (boxes) map.add(p.n / line, line, cols / line);
    map.add_axes(axes, b_strides, boxes ? 2 : 3, params.b_steps);
    return map;
  };
  const auto columns_of = [&](int64_t n) {
    return p.batch.numel() * ceil_div(n, cols) * tiling.slabs;
  };
  const int64_t columns = columns_of(p.n);
  params.b_at = b.data();
  params.b_row = p.b.row;
  params.b_col = p.b.col;
  std::copy(b_strides.begin(), b_strides.end(), params.b_axes);
  params.values = values.encode("dsd");
  params.b = map_b(tiling.depth).encode("dsd");
  if (plan.strips.pairs) params.b_pairs = map_b(2 * tiling.depth).encode("dsd");
  params.list = strips.list;
  params.lists = list_memory(strips.lists, strips.columns, work.split.packed);
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.value_steps = steps_of(axes.strides(p.batch, 0, p.sum, 0), block * block);
  params.head_steps = steps_of(axes.strides(p.batch, 3, p.sum, 2), 1);
  params.b_boxes = boxes ? 0 : cols / line;
  params.tiles = static_cast<int>(columns / p.batch.numel());
  params.columns = static_cast<int>(columns);
  params.order = order_of_columns(plan.order, columns_of(work.planned_n), columns);
  params.m = p.block_rows() * block;
  params.n = static_cast<int>(p.n);
  return columns * strips.list.strips;
}

}  // namespace bs::cuda
