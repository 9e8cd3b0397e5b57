#include <bs/kernels/nonzero.h>

#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/integers.h>

namespace bs {

Tensor flat_nonzero(const Tensor& x) { return nonzero(reshape(x, {x.numel()})).squeeze(1); }

Tensor nonzero(const Tensor& x) {
  const Device device = x.device();
  if (x.numel() == 0) return Tensor::empty({0, x.rank()}, i64, device);
  const Tensor flags = contiguous(x.dtype() == boolean ? x : ne(x, 0));
  const int64_t parts = ceil_div(flags.numel(), nonzero_part);
  const Tensor before = Tensor::empty({parts + 1}, i64, device);
  BS_DISPATCH(device, count_nonzero, flags, before);
  const auto count = static_cast<int64_t>(before.slice(0, parts, parts + 1).item());
  Tensor coordinates = Tensor::empty({count, x.rank()}, i64, device);
  if (coordinates.numel() > 0) BS_DISPATCH(device, nonzero, flags, before, coordinates);
  return coordinates;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check_same_device("masked_select", x, mask);
  BS_CHECK(broadcast_shapes("masked_select", x.shape(), mask.shape()) == x.shape(),
           "masked_select: mask {} for shape {}", mask.shape(), x.shape());
  const Tensor at = flat_nonzero(mask.expand(x.shape()));
  return index_select(reshape(x, {x.numel()}), 0, at);
}

Tensor one_hot(const Tensor& indices, int64_t classes, DType dtype) {
  if (indices.dtype() != i64 && indices.dtype() != i32)
    detail::unsupported_dtype("one_hot", indices.dtype(), "i64 or i32");
  BS_CHECK(classes >= 0, "one_hot: {} classes", classes);
  Shape shape = indices.shape();
  shape.push_back(classes);
  Tensor y = Tensor::empty(shape, dtype, indices.device());
  const int64_t rows = indices.numel();
  if (y.numel() > 0)
    BS_DISPATCH(y.device(), one_hot, reshape(contiguous(indices), {rows}), y.view({rows, classes}));
  return y;
}

}  // namespace bs
