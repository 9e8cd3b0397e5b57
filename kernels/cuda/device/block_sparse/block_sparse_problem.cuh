#pragma once
#include <bs/kernels/cuda/device/block_sparse/work_split.cuh>
#include <bs/kernels/cuda/device/gemm/gemm_params.cuh>

// What a launch of the block-sparse products tells its kernel: plain data, and the same to the
// host's compiler, which fills it, as to the device's. kernels/block_sparse_matmul_problem.h says
// what the products are.

namespace bs::cuda::device {

/// Offsets of `N` operands over the entries of a batch or of a sum, in row-major order. Entries are
/// counted in 32 bits: dividing 64-bit numbers is a function call, which costs registers.
template <int N>
struct OperandLoop {
  int rank;
  unsigned shape[8];
  long long strides[N][8];
};

/// The lines of a layout in the order in which a product walks them: rows, or columns of S^T.
struct BlockOrder {
  const int* offsets;   ///< [heads * lines + 1]
  const int* number;    ///< of the block, or null where blocks are numbered in this order
  const int* position;  ///< of the block along the line
  int heads, lines;
};

struct DenseSteps {
  long long row, col;  ///< elements; one of the two is 1
};

/// How the tiles of a result are numbered, and whether it falls into whole vectors of 16 bytes.
struct TileGrid {
  int row_tiles, col_tiles;  ///< over the rows of a block; over the columns
  bool c_aligned;
};

struct DsdArguments {
  const void* values;
  const void* b;
  void* c;
  BlockOrder order;
  const int* lines;  ///< in the order in which they are taken
  DenseSteps b_steps, c_steps;
  long long n;
  OperandLoop<4> batch;  ///< values, B, C, head
  OperandLoop<3> sum;    ///< values, B, head
  TileGrid grid;
  WorkSplit split;  ///< where tiles are cut; a step is of as many blocks as a stage has, or of one
  int* next;        ///< a zero before and after the launch: pieces taken
  const int* mark;  ///< of kernels that repeat a product: all is computed if `marked` stands there
  int marked;
  unsigned tiles;  ///< theirs
  BlockSparseEpilogueArguments epilogue;
};

struct SddArguments {
  const void* a;
  const void* b;
  void* values;
  BlockOrder order;
  DenseSteps a_steps, b_steps;
  int k;
  long long a_head, b_head;
  OperandLoop<3> batch;  ///< A, B, values
  OperandLoop<2> sum;    ///< A, B
  TileGrid grid;
  BlockSparseEpilogueArguments epilogue;
};

}  // namespace bs::cuda::device
