#include <bs/kernels/nonzero.h>

#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/lib/integers.h>

namespace bs {

namespace {

/// Dense flags of x, and how many are true in front of each part.
struct Counted {
  Tensor flags, before;
  int64_t count;

  explicit Counted(const Tensor& x)
      : flags(contiguous(x.dtype() == boolean ? x : ne(x, 0))),
        before(Tensor::empty({ceil_div(x.numel(), nonzero_part) + 1}, i64, x.device())) {
    BS_DISPATCH(x.device(), count_nonzero, flags, before);
    const int64_t parts = before.numel() - 1;
    count = static_cast<int64_t>(before.slice(0, parts, parts + 1).item());
  }
};

}  // namespace

Tensor flat_nonzero(const Tensor& x) { return nonzero(reshape(x, {x.numel()})).squeeze(1); }

Tensor nonzero(const Tensor& x) {
  const Device device = x.device();
  if (x.numel() == 0) return Tensor::empty({0, x.rank()}, i64, device);
  const Counted found(x);
  Tensor coordinates = Tensor::empty({found.count, x.rank()}, i64, device);
  if (coordinates.numel() > 0) BS_DISPATCH(device, nonzero, found.flags, found.before, coordinates);
  return coordinates;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check_same_device("masked_select", x, mask);
  BS_CHECK(broadcast_shapes("masked_select", x.shape(), mask.shape()) == x.shape(),
           "masked_select: mask {} for shape {}", mask.shape(), x.shape());
  if (x.numel() == 0) return Tensor::empty({0}, x.dtype(), x.device());
  const Counted found(mask.expand(x.shape()));
  Tensor values = Tensor::empty({found.count}, x.dtype(), x.device());
  if (found.count > 0)
    BS_DISPATCH(x.device(), masked_select, contiguous(x), found.flags, found.before, values);
  return values;
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
