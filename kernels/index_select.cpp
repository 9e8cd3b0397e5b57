#include <bs/kernels/index_select.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

namespace bs {

namespace {

void check_indices(const char* op, const Tensor& x, const Tensor& indices) {
  BS_CHECK(indices.rank() == 1, "{}: indices of shape {} are not a vector", op, indices.shape());
  if (indices.dtype() != i64 && indices.dtype() != i32)
    detail::unsupported_dtype(op, indices.dtype(), "i64 or i32");
  check_same_device(op, x, indices);
}

/// The extents before `axis`, of it, and behind it.
Shape around(const Shape& shape, int axis) {
  return {shape.slice(0, axis).product(), shape[axis],
          shape.slice(axis + 1, shape.rank()).product()};
}

}  // namespace

Tensor index_select(const Tensor& x, int axis, const Tensor& indices) {
  const int at = normalize_axis("index_select", axis, x.rank());
  check_indices("index_select", x, indices);
  Shape shape = x.shape();
  shape[at] = indices.numel();
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  if (y.numel() > 0)
    BS_DISPATCH(x.device(), index_select, contiguous(x).view(around(x.shape(), at)),
                contiguous(indices), y.view(around(shape, at)), "index_select");
  return y;
}

Tensor index_select_backward(const Tensor& dy, int axis, const Tensor& indices, int64_t extent,
                             int64_t skip) {
  const char* op = "index_select_backward";
  const int at = normalize_axis(op, axis, dy.rank());
  check_indices(op, dy, indices);
  BS_CHECK(dy.size(at) == indices.numel(), "{}: {} indices for axis {} of dy {}", op,
           indices.numel(), at, dy.shape());
  BS_CHECK(extent >= 0, "{}: extent {} is negative", op, extent);
  Shape shape = dy.shape();
  shape[at] = extent;
  if (dy.numel() == 0) return zeros(shape, dy.dtype(), dy.device());
  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  if (dx.numel() > 0)
    BS_DISPATCH(dy.device(), index_select_backward, Tensor(),
                contiguous(dy).view(around(dy.shape(), at)), contiguous(indices),
                dx.view(around(shape, at)), skip);
  return dx;
}

}  // namespace bs
