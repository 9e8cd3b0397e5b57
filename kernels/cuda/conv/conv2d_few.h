#pragma once
/** @file Convolutions of few channels as others that warpgroups take: an image of three would leave
 *  61 of the 64 channels of each step of the depth empty. */
#include <bs/kernels/conv2d_problem.h>
#include <bs/lib/stream.h>

#include <array>
#include <cstdint>
#include <optional>

namespace bs::cuda {

/** @brief The problem with the channels of x filled up with zeros to whole vectors of 16 bytes. */
Conv2dProblem with_whole_channels(const Conv2dProblem& problem);

/** @brief What a channel of gathered taps reads: an element, so far from the first of its pixel. */
struct GatheredTap {
  int16_t h, w;
  int16_t c;  ///< -1 for none: it is zero
};

/** @brief A problem whose filters have been split into groups of `group` neighbours of a row: all
 *  rows of a group are channels of one pixel, and what is left is a filter of one row. Its gradient
 *  of the weight is [k, 64, 1, groups], of which channel (r * group + b) * c + i and column j are
 *  those of channel i at place [r, j * group + b]. */
struct GatheredTaps {
  static constexpr int channels = 64;

  Conv2dProblem problem;
  int64_t group = 0;
  std::array<GatheredTap, channels> taps{};
  int64_t step_h = 0, step_w = 0;  ///< from a pixel to the next, in x
};
/** @brief As large groups as 64 channels hold; none if not even one column fits, or where x has
 *  channels enough. */
std::optional<GatheredTaps> gathered_taps(const Conv2dProblem& problem);

/** @brief The image of a problem of gathered taps.
 *  @param[in] x [n][h][w][c] of the problem that was split, 16 bits
 *  @param[out] to [n][p][w'][64] */
void gather_taps(const GatheredTaps& by, const Tensor& x, const Tensor& to, Stream stream);

/** @brief The gradient of the weight [k, c, r, s] from that of gathered taps [k][groups][64]. */
void scatter_taps(const GatheredTaps& by, const Tensor& from, const Tensor& dweight, Stream stream);

}  // namespace bs::cuda
