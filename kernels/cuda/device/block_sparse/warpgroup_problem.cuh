#pragma once
#include <bs/kernels/cuda/device/gemm/gemm_params.cuh>

// What a launch of the warpgroup kernels of the block-sparse products tells them: plain data, and
// the same to the host's compiler, which fills it, as to the device's.
#include <bs/kernels/cuda/device/block_sparse/work_split.cuh>
#include <bs/kernels/cuda/device/ptx/tensor_map.cuh>

namespace bs::cuda::device {

/// A layout in strips of as many block rows of one head as a kernel multiplies at once, each with
/// the union of the columns of its rows; kernels/cuda/block_sparse/plan/block_sparse_strips.h makes
/// it.
struct StripList {
  const int* offsets;  ///< [heads * strips + 1], into the union columns
  const int* cols;     ///< [entries], block column, sorted or in PairOrder
  const int* blocks;   ///< [entries, rows of a strip], block number, or -1 where a row lacks it
  const int* order;    ///< [heads * strips], strips of each head, the longest first
  const int* rows;     ///< where rows are gathered: [strips, rows of one], of sdd over all heads,
                       ///< of dsd in the head, behind whose last row are those that a strip lacks
  int strips;          ///< of one head; where sdd gathers rows, block rows of one
};

/// Where lists lie of which one says where to read in the next: what is in memory of them is asked
/// for at once, before the first is read.
struct ListMemory {
  const void* from[3];
  int lines[3];  ///< of 128 bytes; 0: none
};

/// Three axes, over which a batch comes first and the products summed into each of it after it.
struct BatchAxes {
  int shape[3];
};
/// What a step along each axis is in an operand; 0 where the operand is repeated.
struct BatchSteps {
  int step[3];
};

/// C = op(S) B for each C of a batch.
struct WarpgroupDsdParams {
  TensorMapWords values;   ///< [blocks * block, block], in boxes of a slice
  TensorMapWords b;        ///< depth along lines or columns along them, then the axes
  TensorMapWords b_pairs;  ///< b in boxes of two blocks of 32 of the depth, where it is along lines
  TensorMapWords c;        ///< [batch, m, n], or [batch, n, m] where C is written by columns
  const void* blocks;      ///< the values, for small blocks
  const void* b_at;        ///< B, where absent blocks must be kept out; and its steps in elements
  long long b_row, b_col;  ///< to the next neighbour along the depth, and to the next column
  long long b_axes[3];     ///< and along each axis of the batch
  StripList list;
  ListMemory lists;
  BatchAxes batch, sum;
  BatchSteps value_steps;  ///< in blocks
  BatchSteps b_steps;      ///< 1 or 0
  BatchSteps head_steps;
  int b_boxes;  ///< copies a slice of B takes, of 64 columns each; 0: one, of all columns
  int tiles;    ///< column tiles of C
  int columns;  ///< of all C
  WorkOrder order;
  WorkSplit split;
  int items;  ///< tiles of all C, or pieces
  int* next;  ///< two zeros: items taken, CTAs that found no more
  int m, n;   ///< of C
  BlockSparseEpilogueArguments epilogue;
  TensorMapWords aside;  ///< like c, of what the epilogue stores beside it
};

/// The blocks of A B for each S of a batch.
struct WarpgroupSddParams {
  TensorMapWords a;       ///< depth along lines of A or rows along them, then head and two axes
  TensorMapWords b;       ///< likewise, columns for rows
  TensorMapWords values;  ///< [blocks * block, block]
  StripList list;
  ListMemory lists;
  const SddRange* work;  ///< [works, CTAs of a cluster]
  int works;
  BatchAxes batch, sum;
  BatchSteps a_steps, b_steps;  ///< 1 or 0
  int a_head, b_head;           ///< 1 or 0
  int depth;                    ///< k
  int blocks;                   ///< of one S of the batch
  WorkSplit split;
  int items;
  int* next;     ///< as above
  int heads, m;  ///< rows of a head
  BlockSparseEpilogueArguments epilogue;
  TensorMapWords aside;  ///< like values
};

}  // namespace bs::cuda::device
