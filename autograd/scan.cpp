#include <bs/autograd/scan.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/scan.h>

namespace bs {

namespace {

/// Sums up to each element, or from it on.
struct CumulativeSum {
  int axis;
  bool reverse;

  Tensor operator()(const Tensor& x) const { return cumsum(x, axis, reverse); }
  Variable operator()(const Variable& x) const {
    return record_linear("cumsum", x, (*this)(x.data()), CumulativeSum{axis, !reverse});
  }
};

/// The backward of cumprod.
struct CumulativeProduct {
  SavedTensor x, y;
  int axis;

  Grads operator()(const Tensor& dy) const { return {cumprod_backward(x, y, dy, axis)}; }
  /// Products of 2, 4, 8 ... neighbours: no division, so zeros are right in every derivative.
  VariableGrads again(const Recorded& r) const {
    return by_definition(r, [this](std::span<const Variable> in) {
      Variable running = cast(in[0], in[0].dtype() == f64 ? f64 : f32);
      const int64_t n = in[0].size(axis);
      for (int64_t d = 1; d < n; d *= 2)
        running = concat({slice(running, axis, 0, d),
                          slice(running, axis, d, n) * slice(running, axis, 0, n - d)},
                         axis);
      return cast(running, in[0].dtype());
    });
  }
};

/// The axis stays, with extent 1.
Variable prod_along(const Variable& x, int axis) {
  const int64_t n = x.size(axis);
  if (n > 0) return slice(cumprod(x, axis), axis, n - 1, n);
  return record_linear("prod", x, prod(x.data(), axis, true),
                       [shape = x.shape(), dtype = x.dtype()](const auto& dy) {
                         return zeros(shape, dtype, dy.device());  // of no elements
                       });
}

}  // namespace

Variable cumsum(const Variable& x, int axis) {
  return record_linear("cumsum", x, cumsum(x.data(), axis), CumulativeSum{axis, true});
}

Variable cumprod(const Variable& x, int axis) {
  const Tensor y = cumprod(x.data(), axis);
  return tape().record("cumprod", {x}, y,
                       CumulativeProduct{SavedTensor(x.data()), SavedTensor(y), axis});
}

Variable prod(const Variable& x, const Axes& axes, bool keepdim) {
  const Dims named = reduced_axes("prod", axes, x.rank());
  Variable y = x;
  for (const int64_t axis : named) y = prod_along(y, static_cast<int>(axis));
  for (int i = named.rank() - 1; i >= 0 && !keepdim; --i)
    y = squeeze(y, static_cast<int>(named[i]));
  return y;
}

}  // namespace bs
