#pragma once
/** @file Which kernel convolves, and in which tiles: pure functions of a problem and a GPU. */
#include <bs/kernels/conv2d_description.h>
#include <bs/kernels/cuda/gpu/gpu.h>
#include <bs/lib/dtype.h>

#include <array>
#include <span>

namespace bs::cuda {

/** @brief A tile of a product on warpgroups. */
struct Conv2dTile {
  int rows, columns;
  int groups;  ///< warpgroups that multiply
  int stages;

  auto operator<=>(const Conv2dTile&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};
/** @brief Those that there are kernels of; each also with several CTAs along the depth. */
std::span<const Conv2dTile> conv2d_tiles(Conv2dKind kind);

/** @brief Whether the sums that the CTAs of a cluster along the depth exchange fit beside the
 *  stages. */
bool fits_cluster(const Conv2dTile& tile, int cluster_k);

/** @brief A tile of a product on single warps: 2 x 2 of them. */
struct Conv2dPortableTile {
  int rows, columns;
};
std::span<const Conv2dPortableTile> conv2d_portable_tiles();

/** @brief What a kernel's text depends on, beside the epilogue. */
struct Conv2dForm {
  Conv2dKind kind = Conv2dKind::fprop;
  DType dtype = DType::bf16;
  bool warpgroup = true;  ///< else single warps
  Conv2dTile tile{};      ///< of single warps only rows and columns count
  int cluster_k = 1;      ///< warpgroup: CTAs of a cluster that have a part of the depth each
  bool sliced = false;    ///< the depth goes in slices, which a second kernel adds up
  bool odd = false;       ///< warpgroup: rows of the result are no multiples of 16 bytes
  bool phases = false;    ///< warpgroup: the gradient of an input that is strided
  bool blocks = false;    ///< warpgroup: of the filters only listed blocks exist
  int align_c = 8, align_k = 8;  ///< single warps: elements that channels of x and y come by
  bool tf32 = false;             ///< f32 rounded to it

  auto operator<=>(const Conv2dForm&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};

enum class Conv2dPath : uint8_t {
  direct,  ///< a thread a sum: everything that the others do not take
  matmul,  ///< filters of one tap, step 1: rows of pixels times a matrix
  tiles,   ///< tiles of a product whose operands are gathered
  whole,   ///< the same for the problem with_whole_channels()
  taps,    ///< the same for the problem of gathered_taps()
};

struct Conv2dPlan {
  Conv2dPath path = Conv2dPath::direct;
  Conv2dForm form;  ///< of the problem that the path names
  int slices = 1;
};

/** @brief The product that a convolution is. */
struct Conv2dProduct {
  int64_t rows = 0, columns = 0;
  int64_t depth = 0;   ///< of the deepest phase
  int64_t steps = 0;   ///< of warpgroups, of 64 channels of a tap, in the deepest phase
  int64_t phases = 1;  ///< of the input's gradient: pixels that the same taps reach
};
Conv2dProduct conv2d_product(const Conv2dProblem& problem, Conv2dKind kind);

/** @brief Whether the copy engine can walk the tensors of a problem in 16 bits. */
bool fits_warpgroups(const Conv2dProblem& problem, Conv2dKind kind);

/** @brief Whether tiles of single warps can gather a problem's operands. */
bool fits_tiles(const Conv2dProblem& problem, Conv2dKind kind);

/** @brief Nanoseconds of a plan on warpgroups, by estimate. */
double conv2d_time(const Conv2dProduct& product, const Conv2dPlan& plan, const Gpu& gpu);

/** @brief What the way depends on beside problem and GPU. */
struct Conv2dWish {
  Conv2dKind kind = Conv2dKind::fprop;
  DType dtype = DType::f32;
  bool plain = true;    ///< nothing but a bias is added
  bool bare = true;     ///< nothing is
  bool tf32 = false;    ///< f32 may be rounded
  bool aligned = true;  ///< all tensors begin at multiples of 16 bytes
};
/** @brief The fastest way by estimate. */
Conv2dPlan plan_conv2d(const Conv2dProblem& problem, const Conv2dWish& wish, const Gpu& gpu);

}  // namespace bs::cuda
