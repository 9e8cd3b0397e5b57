#pragma once
// How convolutions whose filters are blocks fill the stages of a product of warpgroups: as
// conv2d_loader.cuh, but what they read is listed, since only some blocks exist.
#include <bs/kernels/cuda/device/conv/conv2d_loader.cuh>

namespace bs::cuda::device {

/// Rows of the product are pixels, its depth is the list of a column of tiles: the result of a
/// convolution, and the gradient of its input. A box of a block is [filter][channel].
template <class C>
struct BlockSparsePixelLoader : BoxCopies<C> {
  using Params = BlockSparseConv2dParams;
  static constexpr int warps = 2;
  static constexpr bool own_steps = true;
  const Params& p;
  Conv2dPixel pixel;
  int next, end;
  Conv2dPiece piece;  // of the step to come

  __device__ static int list_of(const Params& p, const GemmWork& work) {
    return work.problem * ((p.gemm.problem.n + C::columns - 1) / C::columns) + work.n;
  }
  /// A tile without blocks has one step, of nothing.
  __device__ static int steps(const Params& p, const GemmWork& work) {
    const int* const offset = p.offsets + list_of(p, work);
    const int count = offset[1] - offset[0];
    return count == 0 ? 1 : count;
  }
  __device__ BlockSparsePixelLoader(const Params& params, const GemmWork& work)
      : p(params), pixel(params.grid, work.m * C::rows) {
    const int* const offset = p.offsets + list_of(p, work);
    next = offset[0];
    end = offset[1];
    piece = next < end ? p.pieces[next] : Conv2dPiece{{0, 0, 0}, p.grid.channels, 0, 1 << 30};
  }

  __device__ void load(unsigned stage, Barrier& full, int, int warp) {
    const Conv2dPiece now = piece;
    if (++next < end) piece = p.pieces[next];  // which arrives while the copies wait for room
    if (warp == 0) {
      load_im2col(stage, p.a, full, now.channel, pixel.w, pixel.h, pixel.image, now.at.w, now.at.h);
    } else if constexpr (C::b_k_contiguous) {
      load_box_for<1>(stage + BoxCopies<C>::a_bytes, p.b, full, now.x, now.y, 0);
    } else {
#pragma unroll
      for (int s = 0; s < C::columns; s += 64)
        load_box_for<1>(stage + BoxCopies<C>::a_bytes + s * BoxCopies<C>::line, p.b, full,
                        now.x + s, now.y, 0);
    }
  }

  __device__ static Conv2dPlaces places(const Params& p) { return {p.grid}; }
};

template <class C>
using BlockSparsePhaseLoader = OfPhases<BlockSparsePixelLoader<C>>;

/// Rows are the filters of a row of blocks, columns are listed pieces of 64 channels, and the depth
/// is pixels: the gradient of blocks.
template <class C>
struct BlockSparseFilterLoader : Conv2dFilterCopies<C> {
  using Params = BlockSparseConv2dParams;
  using Copies = Conv2dFilterCopies<C>;

  __device__ static Conv2dPiecePlaces places(const Params& p) { return {p}; }
  __device__ BlockSparseFilterLoader(const Params& params, const GemmWork& work)
      : Copies(params, params.pieces[work.n * Copies::pieces].x, work.k_begin) {
#pragma unroll
    for (int i = 0; i < Copies::own; ++i) {
      const int piece = i * Copies::warps + Copies::this_warp();
      if (piece < Copies::pieces) this->take(i, params.pieces[work.n * Copies::pieces + piece]);
    }
  }
};

}  // namespace bs::cuda::device
