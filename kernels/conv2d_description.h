#pragma once
/** @file What a convolution's kernel is, in the vocabulary of gemm_description.h: which pass, which
 *  loader, tiles, schedule and epilogue, before any sizes are known. */
#include <bs/kernels/conv2d_problem.h>
#include <bs/kernels/gemm_description.h>

#include <string>

namespace bs {

/** @brief What is computed: the result, or the gradient of the input or of the filters. */
enum class Conv2dKind : uint8_t { fprop, dgrad, wgrad };

/** @brief What a run asks of the channels. The names are CUTLASS'; here they choose no kernel of
 *  their own: the instruction says who gathers pixels, and the alignments in what pieces. So all
 *  four give the same text for one tile of single warps, which takes any channels that they let
 *  pass. */
enum class Conv2dIterator : uint8_t {
  analytic,        ///< single warps: multiples of the alignments
  optimized,       ///< the same; the only one of warpgroups, whose copy engine wants multiples of
                   ///< 8, and for wgrad C of 64
  fixed_channels,  ///< fprop of single warps: C is the alignment of a, a tap of a pixel one access
  few_channels,    ///< fprop of single warps: C is less than a stage's depth, which taps share
};

/** @brief Which strides a run may have; `unit`: 1x1 alone. */
enum class StrideSupport : uint8_t { unit, strided };

/** @brief One of a, b and d: its elements, and what its channels and address are multiples of. */
struct Conv2dOperand {
  Element element = Element::f16;
  int alignment = 8;  ///< 16 bytes at most

  bool operator==(const Conv2dOperand&) const = default;
};

/** @brief Everything but the sizes.
 *
 *  | kind | a | b | d |
 *  |---|---|---|---|
 *  | fprop | x [N, C, H, W] | weight [K, C, R, S] | y [N, K, P, Q] |
 *  | dgrad | dy | weight | dx |
 *  | wgrad | dy | x | dweight |
 *
 *  As a product, d's rows are pixels and its columns are channels; for wgrad filters, and channels
 *  tap by tap. */
struct Conv2dDescription {
  Conv2dKind kind = Conv2dKind::fprop;
  Conv2dIterator iterator = Conv2dIterator::optimized;
  StrideSupport stride = StrideSupport::strided;
  TileDescription tile;
  Conv2dOperand a, b, d;
  GemmEpilogue epilogue;  ///< without reductions
  Swizzle swizzle = Swizzle::identity1;
  SplitK split_k = SplitK::none;
};

/** @brief Throws an Error that says what does not fit, with the values, unless some GPU can do it.
 */
void check(const Conv2dDescription& description);
/** @brief The product that it is, one of whose operands is gathered. Strided gradients of the input
 *  are a batch: a product for each phase. */
GemmDescription gemm_of(const Conv2dDescription& description);

/** @brief What else tells who fills the stages of a kernel of warpgroups. */
struct Conv2dLoads {
  bool blocks = false;  ///< of the filters only listed blocks exist
  bool phases = false;  ///< the gradient of an input that is strided, stored row by row
  bool operator==(const Conv2dLoads&) const = default;
};

/** @brief Those of a description. Gradients of a strided input leave row by row as conv2d's do,
 *  where their depth is in one piece. */
Conv2dLoads loads_of(const Conv2dDescription& description);

/** @brief The kernel's name, which tells kind, unit, type and tile. */
std::string conv2d_name(Conv2dKind kind, const GemmDescription& product, Conv2dLoads loads = {});
/** @brief Who fills the stages of such a product. */
GemmLoaderText conv2d_loader(Conv2dKind kind, const GemmDescription& product,
                             Conv2dLoads loads = {});
/** @name The kernel as CUDA text, and the one that adds up the slices of SplitK::parallel
 *  @{ */
std::string to_conv2d_source(Conv2dKind kind, const GemmDescription& product,
                             Conv2dLoads loads = {});
std::string to_conv2d_join_source(Conv2dKind kind, const GemmDescription& product,
                                  Conv2dLoads loads = {});
/** @} */

std::string to_string(Conv2dKind kind);
std::string to_string(Conv2dIterator iterator);
std::string to_string(StrideSupport stride);

}  // namespace bs
