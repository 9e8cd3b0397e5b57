#pragma once
/** @file Differentiable views: free forward, and free backward but for slices and expand. The
 *  arguments mean what they mean for Tensor's members. */
#include <bs/autograd/variable.h>
#include <bs/kernels/copy.h>

namespace bs {

/** @brief The same elements under another shape; one extent may be -1. Always a view.
 *  @throws Error when strides cannot express it; reshape copies then. */
Variable view(const Variable& x, const Shape& shape);
/** @brief The same elements under another shape: a view where strides allow it, else a copy. */
Variable reshape(const Variable& x, const Shape& shape);
/** @brief Joins the axes [from, to] into one: a view where strides allow it, else a copy. */
Variable flatten(const Variable& x, int from = 0, int to = -1);
Variable permute(const Variable& x, const Dims& axes);
Variable transpose(const Variable& x, int a, int b);
Variable unsqueeze(const Variable& x, int axis);
Variable squeeze(const Variable& x, int axis);
/** @brief Repeats axes of extent 1 (and new leading ones); its backward sums over them. */
Variable expand(const Variable& x, const Shape& shape);
/** @brief Elements [begin, end) of `axis`, every `step`-th; its backward puts dy among zeros. */
Variable slice(const Variable& x, int axis, int64_t begin, int64_t end, int64_t step = 1);
/** @brief Element `index` of `axis`, which disappears. */
Variable select(const Variable& x, int axis, int64_t index);

/** @name Views of a Tensor are a Tensor
 *  reshape of one stands in kernels/copy.h.
 *  @{ */
inline Tensor view(const Tensor& x, const Shape& shape) { return x.view(shape); }
inline Tensor flatten(const Tensor& x, int from = 0, int to = -1) {
  return reshape(x, flattened(x.shape(), from, to));
}
inline Tensor permute(const Tensor& x, const Dims& axes) { return x.permute(axes); }
inline Tensor transpose(const Tensor& x, int a, int b) { return x.transpose(a, b); }
inline Tensor unsqueeze(const Tensor& x, int axis) { return x.unsqueeze(axis); }
inline Tensor squeeze(const Tensor& x, int axis) { return x.squeeze(axis); }
inline Tensor expand(const Tensor& x, const Shape& shape) { return x.expand(shape); }
inline Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step = 1) {
  return x.slice(axis, begin, end, step);
}
inline Tensor select(const Tensor& x, int axis, int64_t index) { return x.select(axis, index); }
/** @} */

}  // namespace bs
