#include <bs/autograd/view.h>

#include <bs/autograd/tape.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>

namespace bs {

namespace {

/// Records y, whose elements are those of x in the same order.
Variable record_reshaped(const char* name, const Variable& x, Tensor y) {
  return tape().record(name, {x}, std::move(y),
                       [shape = x.shape()](const Tensor& dy) { return Grads{reshape(dy, shape)}; });
}

}  // namespace

Variable view(const Variable& x, const Shape& shape) {
  return record_reshaped("view", x, x.data().view(shape));
}

Variable reshape(const Variable& x, const Shape& shape) {
  return record_reshaped("reshape", x, reshape(x.data(), shape));
}

Variable unsqueeze(const Variable& x, int axis) {
  return record_reshaped("unsqueeze", x, x.data().unsqueeze(axis));
}

Variable squeeze(const Variable& x, int axis) {
  return record_reshaped("squeeze", x, x.data().squeeze(axis));
}

Variable permute(const Variable& x, const Dims& axes) {
  Tensor y = x.data().permute(axes);
  Dims inverse = axes;
  for (int i = 0; i < axes.rank(); ++i) inverse[static_cast<int>(axes[i])] = i;
  return tape().record("permute", {x}, std::move(y),
                       [inverse](const Tensor& dy) { return Grads{dy.permute(inverse)}; });
}

Variable transpose(const Variable& x, int a, int b) {
  return tape().record("transpose", {x}, x.data().transpose(a, b),
                       [a, b](const Tensor& dy) { return Grads{dy.transpose(a, b)}; });
}

Variable expand(const Variable& x, const Shape& shape) {
  return tape().record("expand", {x}, x.data().expand(shape),
                       [from = x.shape()](const Tensor& dy) { return Grads{sum_to(dy, from)}; });
}

Variable slice(const Variable& x, int axis, int64_t begin, int64_t end, int64_t step) {
  return tape().record("slice", {x}, x.data().slice(axis, begin, end, step),
                       [shape = x.shape(), axis, begin, end, step](const Tensor& dy) {
                         return Grads{slice_backward(dy, shape, axis, begin, end, step)};
                       });
}

Variable select(const Variable& x, int axis, int64_t index) {
  const int64_t at = index < 0 ? index + x.size(axis) : index;
  return tape().record("select", {x}, x.data().select(axis, at),
                       [shape = x.shape(), axis, at](const Tensor& dy) {
                         return Grads{slice_backward(dy.unsqueeze(axis), shape, axis, at, at + 1)};
                       });
}

Variable Variable::operator[](int64_t index) const { return select(*this, 0, index); }
Variable Variable::reshape(const Shape& shape) const { return bs::reshape(*this, shape); }

}  // namespace bs
