#pragma once
// Where the pixels of a convolution lie: from the rows of a product to inputs and results.
#include <bs/kernels/cuda/device/conv/conv2d_params.cuh>
#include <bs/kernels/cuda/device/gemm/gemm_epilogue.cuh>

namespace bs::cuda::device {

/// The pixel of a grid that is row `row` of the product: coordinates of its first input.
struct Conv2dPixel {
  int h, w, image;

  __device__ Conv2dPixel(const Conv2dGrid& g, int row) {
    const int line = row / g.width;
    w = (row - line * g.width) * g.step_w + g.first_w;
    image = line / g.height;
    h = (line - image * g.height) * g.step_h + g.first_h;
  }
};

/// Where the results of rows lie: pixels of phases lie between each other. The product's batch is
/// the phase.
struct Conv2dPlaces {
  static constexpr bool scattered = false;
  const Conv2dGrid& g;

  __device__ EpiloguePlace at(int row, int column, int batch, int count) const {
    if (g.phases == 1) return {row, column, batch, count};
    const int line = row / g.width, image = line / g.height;
    const int h = (line - image * g.height) * g.phase_h + batch / g.phase_w;
    const int w = (row - line * g.width) * g.phase_w + batch % g.phase_w;
    const bool inside = h < g.result_height && w < g.result_width;
    return {(image * g.result_height + h) * g.result_width + w, column, 0, inside ? count : 0};
  }
};

/// The same, known to be several phases.
struct Conv2dPhasePlaces : Conv2dPlaces {
  static constexpr bool scattered = true;
};

/// Where the results of the gradient of blocks lie: 64 columns of a tile are a piece, in the rows
/// of its block.
struct Conv2dPiecePlaces {
  static constexpr bool scattered = true;
  const BlockSparseConv2dParams& p;

  __device__ EpiloguePlace at(int row, int column, int, int count) const {
    const Conv2dPiece piece = p.pieces[column / 64];
    const int first = piece.channel % p.block;
    return {piece.y + row, first + column % 64, 0, piece.y >= 0 ? count : 0};
  }
};

}  // namespace bs::cuda::device
