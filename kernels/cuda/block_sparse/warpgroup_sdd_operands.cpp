#include <bs/kernels/cuda/block_sparse/warpgroup_sdd_operands.h>

#include <algorithm>

namespace bs::cuda {

SddOperand SddOperand::left(const Tensor& a, const SddProblem& p) {
  const bool along_k = p.a.col == 1;
  return {.x = a,
          .number = 0,
          .along_k = along_k,
          .rows = int64_t{p.layout.rows} * p.layout.block,
          .line = along_k ? p.a.row : p.a.col,
          .head = p.layout.heads > 1 ? p.a_head : 0};
}

SddOperand SddOperand::right(const Tensor& b, const SddProblem& p) {
  const bool along_k = p.b.col != 1;
  return {.x = b,
          .number = 1,
          .along_k = along_k,
          .rows = int64_t{p.layout.cols} * p.layout.block,
          .line = along_k ? p.b.col : p.b.row,
          .head = p.layout.heads > 1 ? p.b_head : 0};
}

DenseMap SddOperand::map(const SddProblem& p, const Axes& axes, int box_rows, int box_depth,
                         device::BatchSteps& steps) const {
  const bool boxes = x.dtype() == f32 && !along_k;
  const int side = boxes ? std::min(box_rows, 32) : box_rows;
  DenseMap map = along_k ? DenseMap(x, p.k, rows, line, box_depth, side)
                         : DenseMap(x, boxes ? side : rows, p.k, line, side, box_depth);
  if (boxes) map.add(rows / side, side, box_rows / side);
  if (!boxes || head != 0) map.add(head != 0 ? p.layout.heads : 1, head);
  map.add_axes(axes, axes.strides(p.batch, number, p.sum, number), boxes && head != 0 ? 1 : 2,
               steps);
  return map;
}

DescribedSdd describe_sdd(const Tensor& a, const Tensor& b, const SddProblem& p,
                          const SddWork& work, const SddTiling& tiling,
                          device::WarpgroupSddParams& params, Stream stream) {
  const bool turned = work.plan.transposed;
  const SddOperand left = SddOperand::left(a, p), right = SddOperand::right(b, p);
  const SddOperand &strips = turned ? right : left, &gathered = turned ? left : right;
  const Axes axes(p.batch, p.sum);
  DenseMap rows = strips.map(p, axes, tiling.rows, tiling.depth, params.a_steps);
  if (tiling.tf32) rows.tensor.element = TensorMapElement::tf32;
  params.a = rows.encode("sdd");
  params.b = gathered.map(p, axes, tiling.cols, tiling.depth, params.b_steps).encode("sdd");
  DescribedSdd described{.items = p.batch.numel() * work.items * tiling.slabs};
  Tensor columns;
  if (tiling.gathered) {
    params.list = work.ranges.gathered(turned ? p.layout.cols : p.layout.rows);
  } else {
    const Kept<DeviceStrips>& listed =
        described.strips.emplace(device_strips(*p.pattern, work.plan.strips, stream));
    params.list = listed->list;
    columns = listed->columns;
  }
  params.lists = list_memory(work.ranges.packed, columns, work.split.packed);
  params.work = work.ranges.work;
  params.works = work.items;
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.a_head = strips.head != 0;
  params.b_head = gathered.head != 0;
  params.depth = static_cast<int>(p.k);
  params.blocks = p.layout.nnz;
  params.heads = p.layout.heads;
  params.m = p.layout.rows * p.layout.block;
  return described;
}

}  // namespace bs::cuda
