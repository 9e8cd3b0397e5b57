#include <bs/kernels/block_topk.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/layout_from_rows.h>

#include <limits>

namespace bs {

LayoutPtr block_topk(const Tensor& scores, int k, const BlockTopkOptions& options) {
  constexpr const char* op = "block_topk";
  BS_CHECK(scores.rank() >= 2 && scores.rank() <= 4,
           "{}: scores {} are not [rows, cols], [heads, rows, cols] or [batch, heads, rows, cols]",
           op, scores.shape());
  if (!is_floating(scores.dtype()))
    detail::unsupported_dtype(op, scores.dtype(), "a floating dtype");
  BS_CHECK(k >= 1, "{}: k is {}", op, k);
  BS_CHECK(options.first_blocks >= 0 && options.local_blocks >= 0,
           "{}: first_blocks {} and local_blocks {}", op, options.first_blocks,
           options.local_blocks);
  const int64_t rows = scores.size(-2), cols = scores.size(-1);
  int64_t heads = 1;
  for (int axis = 0; axis + 2 < scores.rank(); ++axis) heads *= scores.size(axis);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  BS_CHECK(rows < most && cols < most && heads < most && heads * std::max(rows, cols) < most,
           "{}: scores {} need indices of more than 31 bits", op, scores.shape());
  const int64_t nnz = heads * detail::topk_blocks(rows, cols, k, options.causal);
  BS_CHECK(nnz <= most, "{}: {} blocks are more than 31 bits can number", op, nnz);
  const LayoutArrays arrays({.block = options.block,
                             .heads = static_cast<int>(heads),
                             .rows = static_cast<int>(rows),
                             .cols = static_cast<int>(cols),
                             .nnz = static_cast<int32_t>(nnz)},
                            scores.device());
  const Tensor dense = reshape(contiguous(scores), {heads, rows, cols});
  BS_DISPATCH(scores.device(), block_topk, dense, k, options, arrays);
  BS_DISPATCH(scores.device(), list_columns, arrays);
  return Layout::from_arrays(arrays);
}

}  // namespace bs
