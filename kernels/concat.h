#pragma once
/** @file Tensors joined along an axis, and cut up again. */
#include <bs/kernels/dispatch.h>

#include <initializer_list>
#include <span>
#include <vector>

namespace bs {

/** @brief The parts behind each other along `axis`, as a new tensor.
 *  @param[in] parts at least one; equal in dtype, device and every other extent; any strides
 *  @throws Error when there are none or they do not fit together. */
Tensor concat(std::span<const Tensor> parts, int axis);
inline Tensor concat(std::initializer_list<Tensor> parts, int axis) {
  return concat(std::span(parts.begin(), parts.size()), axis);
}
/** @brief The parts, all of one shape, along a new axis. @throws Error like concat. */
Tensor stack(std::span<const Tensor> parts, int axis);
inline Tensor stack(std::initializer_list<Tensor> parts, int axis) {
  return stack(std::span(parts.begin(), parts.size()), axis);
}
/** @brief Views of consecutive pieces of `axis`, of the sizes given; nothing is copied.
 *  @throws Error unless the sizes are not negative and add up to the axis. */
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int axis);
/** @brief Views of `count` equal pieces of `axis`. @throws Error unless count divides it. */
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int axis);

/** @brief The sizes of those pieces. */
std::vector<int64_t> chunk_sizes(const Shape& shape, int64_t count, int axis);

/** @brief The gradient of `split` (and of `slice` with steps of 1): the pieces' gradients behind
 *  each other, zeros where one is undefined.
 *  @param[in] dys gradients of the pieces, at least one of them defined
 *  @param[in] sizes of all pieces */
Tensor split_backward(std::span<const Tensor> dys, const std::vector<int64_t>& sizes, int axis);
/** @brief The gradient of `x.slice(axis, begin, end, step)`: dy in its place, zeros elsewhere. Of a
 *  slice that is all of x it is dy itself.
 *  @param[in] shape of x */
Tensor slice_backward(const Tensor& dy, const Shape& shape, int axis, int64_t begin, int64_t end,
                      int64_t step = 1);

}  // namespace bs
