#pragma once
/** @file Whether views name the same memory: what writes in place has to ask. */
#include <bs/lib/tensor.h>

#include <cstdint>

namespace bs {

/** @brief Addresses from the first byte of a view to the one after its last. */
struct ByteRange {
  uintptr_t begin = 0, end = 0;

  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};
/** @brief Empty for a tensor without elements. */
ByteRange byte_range(const Tensor& x);

/** @brief Whether the bytes from the first to the last element of `a` and of `b` have one in
 *  common. False means that no element is shared; views may interleave and share none. */
bool ranges_overlap(const Tensor& a, const Tensor& b);
/** @brief Whether an element of `a` may lie where one of `b` does. Views that take turns, such as
 * two ranges of columns, share none; false is certain. */
bool may_share_elements(const Tensor& a, const Tensor& b);
/** @brief Whether both name the same elements at the same positions, in one dtype. */
bool same_elements(const Tensor& a, const Tensor& b);
/** @brief Whether two positions of `x` are one element, as along an axis of stride 0. */
bool repeats_elements(const Tensor& x);
/** @brief Throws an Error naming `op` where `x`, to be written, repeats elements. */
void check_writable(const char* op, const Tensor& x);

}  // namespace bs
