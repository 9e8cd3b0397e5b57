#pragma once
// What the kernels of dense products are given: plain data, which host code writes too.
#include <bs/kernels/cuda/device/ptx/tensor_map.cuh>

namespace bs::cuda::device {

/// A matrix that the epilogue reads or writes; strides in elements, 0 where it is repeated.
struct GemmOperand {
  void* data;
  long long row, column, batch;
  int wide;  // columns are neighbours, and rows begin at multiples of 16 bytes
};

inline constexpr int most_epilogue_operands = 20, most_epilogue_scalars = 12;

struct EpilogueScalars {
  float in_f32[most_epilogue_scalars];
  double in_f64[most_epilogue_scalars];
};

/// Rows of a block-sparse product that a kernel reduces to one number a column by itself, or all
/// those of a block that has fewer; and on wgmma columns, to one a row.
inline constexpr int reduced_side = 16, reduced_columns = 64;

/// Of one block-sparse product. Behind the operands stand the partial results of reductions: with
/// neighbouring rows, and `column` from one piece of their columns to the next; or with
/// neighbouring columns, and `row` from one piece of rows to the next.
struct BlockSparseEpilogueArguments {
  EpilogueScalars scalars;
  GemmOperand operands[16];
};

struct GemmMatrix {
  const void* data;
  long long ld, batch;  // in elements
};
struct GemmProblem {
  int m, n, k;
  GemmMatrix a, b;
};
struct GemmTile {  // of the host's schedule
  int problem, tile;
};

struct GemmParams {
  GemmProblem problem;                           // batched
  GemmOperand operands[most_epilogue_operands];  // batched
  const GemmProblem* problems;                   // several
  const GemmOperand* operand_table;              // several, `table_width` each
  const GemmTile* schedule;                      // several: tiles in order; null: look them up
  EpilogueScalars scalars;
  int table_width;
  int tiles;       // of all batches or problems
  int slices;      // parts of the depth, where split
  void* partials;  // sums of parts
  int* counters;   // one a tile
};

/// For kernels of warpgroups.
struct WarpgroupGemmParams {
  TensorMapWords a, b, d;      // batched; d where the kernel stores by the copy engine
  const TensorMapWords* maps;  // several: a and b of each
  const int* blocks;           // d block-sparse: the number of each block of D in d; -1: none
  GemmParams gemm;
};

}  // namespace bs::cuda::device
