#pragma once
/** @file Channels as pixels and back (Shi et al., arXiv:1609.05158). A Tensor gives a Tensor. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief x [..., C r^2, H, W] as [..., C, H r, W r]: channel c r^2 + i r + j holds the pixels
 *  of channel c whose row is i and whose column is j, modulo r. One copy.
 *  @throws Error unless x has three axes or more and r^2 divides the channels. */
Variable pixel_shuffle(const Variable& x, int64_t factor);
/** @brief The reverse: x [..., C, H r, W r] as [..., C r^2, H, W].
 *  @throws Error unless x has three axes or more and r divides rows and columns. */
Variable pixel_unshuffle(const Variable& x, int64_t factor);

inline Tensor pixel_shuffle(const Tensor& x, int64_t factor) {
  return pixel_shuffle(Variable(x), factor).data();
}
inline Tensor pixel_unshuffle(const Tensor& x, int64_t factor) {
  return pixel_unshuffle(Variable(x), factor).data();
}

}  // namespace bs
