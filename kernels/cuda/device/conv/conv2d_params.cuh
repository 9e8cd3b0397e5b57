#pragma once
// What the kernels of convolutions are given: plain data, which host code writes too.
#include <bs/kernels/cuda/device/gemm/gemm_params.cuh>

namespace bs::cuda::device {

inline constexpr int most_conv2d_taps = 128, most_conv2d_phases = 25;

/// One position of the filter: how far from a pixel's first input it reads, and its number.
struct Conv2dTap {
  unsigned char h, w;
  unsigned short number;
};

/// A grid of pixels whose rows are those of a product, and what each reads of an image of pixels.
/// Pixels of a phase begin at their own place of the result, `phase_h` and `phase_w` apart.
struct Conv2dGrid {
  int images, height, width;        // of the grid
  int step_h, step_w;               // from one pixel's first input to the next one's
  int first_h, first_w;             // the first pixel's first input
  int channels;                     // of an input
  int height_in, width_in;          // of the images that are read
  int phases, phase_h, phase_w;     // phases; how many of them down and across
  int result_height, result_width;  // where there are several phases
  unsigned short first_tap[most_conv2d_phases + 1];  // of each phase
  Conv2dTap taps[most_conv2d_taps];
};

/// For kernels of warpgroups: a is an image as im2col sees it, b the filters; of a filter's
/// gradient a are gradients of pixels and b is the image.
struct Conv2dParams : WarpgroupGemmParams {
  Conv2dGrid grid;
};

/// Of a convolution whose filters are blocks: a step of 64 channels of one place of the filter,
/// beside a box of a block; or, of the gradient of filters, 64 columns of a tile.
struct alignas(16) Conv2dPiece {
  Conv2dTap at;
  int channel;  // of the images that are read; beyond them where there is nothing
  int x;        // of the box of blocks; of the gradient the tile's first filter
  int y;        // row of the box; of the gradient that of the result, -1 where there is none
};

/// For kernels of warpgroups: b are the blocks, one below the other.
struct BlockSparseConv2dParams : Conv2dParams {
  const int* offsets;  // [phases * tiles of columns + 1], into the pieces
  const Conv2dPiece* pieces;
  int block;
};

/// For kernels of single warps, whose operands are those of the product or images.
struct Conv2dPortableParams : GemmParams {
  Conv2dGrid grid;
};

}  // namespace bs::cuda::device
