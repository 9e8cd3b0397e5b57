#pragma once
// How convolutions fill the stages of a product of warpgroups. The copy engine walks an image pixel
// by pixel and fills in zeros around it (im2col), so that nothing but coordinates differs from the
// loads of a matrix.
#include <bs/kernels/cuda/device/conv/conv2d_pixel.cuh>
#include <bs/kernels/cuda/device/gemm/gemm_loader.cuh>

namespace bs::cuda::device {

/// Rows of the product are pixels, its depth is channels, tap by tap: the result of a convolution,
/// and the gradient of its input, in phases where the stride is more than 1. The filters are b as
/// [filter][tap][channel], or, where b's columns are neighbours, [channel][tap][column].
template <class C>
struct Conv2dPixelLoader : BoxCopies<C> {
  using Params = Conv2dParams;
  static constexpr int warps = 2;
  static constexpr bool own_steps = C::split == GemmSplit::none;
  const Params& p;
  Conv2dPixel pixel;
  int column0, tap, end_tap, channel;

  /// A phase without taps has one step, of nothing.
  __device__ static int steps(const Params& p, const GemmWork& work) {
    const int taps = p.grid.first_tap[work.problem + 1] - p.grid.first_tap[work.problem];
    return taps == 0 ? 1 : taps * ((p.grid.channels + C::depth - 1) / C::depth);
  }
  __device__ Conv2dPixelLoader(const Params& params, const GemmWork& work)
      : p(params), pixel(params.grid, work.m * C::rows), column0(work.n * C::columns) {
    const int blocks = (p.grid.channels + C::depth - 1) / C::depth;
    const int first = p.grid.first_tap[work.problem];
    tap = first + work.k_begin / blocks;
    end_tap = p.grid.first_tap[work.problem + 1];
    channel = work.k_begin % blocks * C::depth;
  }

  __device__ void load(unsigned stage, Barrier& full, int, int warp) {
    const bool known = tap < end_tap;
    const Conv2dTap at = p.grid.taps[known ? tap : 0];
    const int c = known ? channel : p.grid.channels;  // where all is zero
    if (warp == 0) {
      load_im2col(stage, p.a, full, c, pixel.w, pixel.h, pixel.image, at.w, at.h);
    } else if constexpr (C::b_k_contiguous) {
      load_box_for<1>(stage + BoxCopies<C>::a_bytes, p.b, full, c, at.number, column0);
    } else {
#pragma unroll
      for (int s = 0; s < C::columns; s += 64)
        load_box_for<1>(stage + BoxCopies<C>::a_bytes + s * BoxCopies<C>::line, p.b, full,
                        column0 + s, at.number, c);
    }
    channel += C::depth;
    if (channel >= p.grid.channels) {
      channel = 0;
      ++tap;
    }
  }

  __device__ static Conv2dPlaces places(const Params& p) { return {p.grid}; }
};

/// Of several phases, whose pixels leave row by row.
template <class Loader>
struct OfPhases : Loader {
  using Loader::Loader;
  __device__ static Conv2dPhasePlaces places(const typename Loader::Params& p) {
    return {{p.grid}};
  }
};
template <class C>
using Conv2dPhaseLoader = OfPhases<Conv2dPixelLoader<C>>;

/// The copies of products whose depth is pixels: rows are filters, and each 64 columns are so many
/// channels of a place of the filter.
template <class C>
struct Conv2dFilterCopies : BoxCopies<C> {
  static constexpr int warps = 4;
  static constexpr bool own_steps = false;
  static constexpr int pieces = C::columns / 64;
  static constexpr int own = (pieces + warps - 1) / warps;  // of a warp: each fourth one
  const Conv2dParams& p;
  int row0;
  Conv2dPixel pixel;
  int column, row, more_columns, more_rows;  // of the grid: of the pixel, and of 64 pixels
  int channel[own], tap_h[own], tap_w[own];

  __device__ static int this_warp() { return static_cast<int>(threadIdx.x) / 32 % warps; }
  __device__ Conv2dFilterCopies(const Conv2dParams& params, int first_row, int k_begin)
      : p(params), row0(first_row), pixel(params.grid, k_begin * C::depth) {
    const Conv2dGrid& g = p.grid;
    column = k_begin * C::depth % g.width;
    row = k_begin * C::depth / g.width % g.height;
    more_columns = C::depth % g.width;
    more_rows = C::depth / g.width;
  }
  /// What the warp's i-th piece reads.
  __device__ void take(int i, const Conv2dPiece& piece) {
    channel[i] = piece.channel;
    tap_h[i] = piece.at.h;
    tap_w[i] = piece.at.w;
  }

  __device__ void load(unsigned stage, Barrier& full, int step, int warp) {
#pragma unroll
    for (int i = 0; i < C::rows / 64; ++i)
      if (i % warps == warps - 1 - warp)
        load_box_for<1>(stage + i * (64 * BoxCopies<C>::line), p.a, full, row0 + 64 * i,
                        step * C::depth, 0);
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int piece = i * warps + warp;
      if (piece < pieces)
        load_im2col(stage + BoxCopies<C>::a_bytes + piece * (64 * BoxCopies<C>::line), p.b, full,
                    channel[i], pixel.w, pixel.h, pixel.image, tap_w[i], tap_h[i]);
    }
    advance();
  }

 private:
  /// 64 pixels on.
  __device__ void advance() {
    const Conv2dGrid& g = p.grid;
    column += more_columns;
    row += more_rows;
    if (column >= g.width) {
      column -= g.width;
      ++row;
    }
    for (; row >= g.height; row -= g.height) ++pixel.image;
    pixel.w = column * g.step_w + g.first_w;
    pixel.h = row * g.step_h + g.first_h;
  }
};

/// Columns are channels, tap by tap: the gradient of filters. A tap's channels are a multiple of
/// 64.
template <class C>
struct Conv2dFilterLoader : Conv2dFilterCopies<C> {
  using Params = Conv2dParams;
  using Copies = Conv2dFilterCopies<C>;

  __device__ static SamePlaces places(const Params&) { return {}; }
  __device__ Conv2dFilterLoader(const Params& params, const GemmWork& work)
      : Copies(params, work.m * C::rows, work.k_begin) {
    const Conv2dGrid& g = params.grid;
    const int blocks = g.channels / 64;
#pragma unroll
    for (int i = 0; i < Copies::own; ++i) {
      const int piece = work.n * Copies::pieces + i * Copies::warps + Copies::this_warp();
      const int tap = piece / blocks;
      const bool outside = tap >= g.first_tap[1];
      this->take(i, {g.taps[outside ? 0 : tap], outside ? g.channels : piece % blocks * 64, 0, 0});
    }
  }
};

}  // namespace bs::cuda::device
