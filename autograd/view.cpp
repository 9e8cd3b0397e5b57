#include <bs/autograd/view.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>

namespace bs {

namespace {

/// Records y, whose elements are those of x in the same order.
Variable record_reshaped(const char* name, const Variable& x, Tensor y) {
  return record_linear(name, x, std::move(y),
                       [shape = x.shape()](const auto& dy) { return reshape(dy, shape); });
}

Tensor permuted(const Tensor& x, const Dims& axes) { return x.permute(axes); }
Variable permuted(const Variable& x, const Dims& axes) { return permute(x, axes); }
Tensor transposed(const Tensor& x, int a, int b) { return x.transpose(a, b); }
Variable transposed(const Variable& x, int a, int b) { return transpose(x, a, b); }

/// x in the place of a slice, zeros elsewhere.
Variable slice_backward(const Variable& x, const Shape& shape, int axis, int64_t begin, int64_t end,
                        int64_t step = 1) {
  struct Cut {
    int axis;
    int64_t begin, end, step;
    Tensor operator()(const Tensor& dy) const { return dy.slice(axis, begin, end, step); }
    Variable operator()(const Variable& dy) const { return slice(dy, axis, begin, end, step); }
  };
  return record_linear("slice_backward", x,
                       bs::slice_backward(x.data(), shape, axis, begin, end, step),
                       Cut{axis, begin, end, step});
}

}  // namespace

Variable view(const Variable& x, const Shape& shape) {
  return record_reshaped("view", x, x.data().view(shape));
}

Variable reshape(const Variable& x, const Shape& shape) {
  return record_reshaped("reshape", x, reshape(x.data(), shape));
}

Variable flatten(const Variable& x, int from, int to) {
  return record_reshaped("flatten", x, flatten(x.data(), from, to));
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
  return record_linear("permute", x, std::move(y),
                       [inverse](const auto& dy) { return permuted(dy, inverse); });
}

Variable transpose(const Variable& x, int a, int b) {
  return record_linear("transpose", x, x.data().transpose(a, b),
                       [a, b](const auto& dy) { return transposed(dy, a, b); });
}

Variable expand(const Variable& x, const Shape& shape) {
  return record_linear("expand", x, x.data().expand(shape),
                       [from = x.shape()](const auto& dy) { return sum_to(dy, from); });
}

Variable slice(const Variable& x, int axis, int64_t begin, int64_t end, int64_t step) {
  return record_linear("slice", x, x.data().slice(axis, begin, end, step),
                       [shape = x.shape(), axis, begin, end, step](const auto& dy) {
                         return slice_backward(dy, shape, axis, begin, end, step);
                       });
}

Variable select(const Variable& x, int axis, int64_t index) {
  const int64_t at = index < 0 ? index + x.size(axis) : index;
  return record_linear("select", x, x.data().select(axis, at),
                       [shape = x.shape(), axis, at](const auto& dy) {
                         Shape one = shape;
                         one[axis] = 1;
                         return slice_backward(reshape(dy, one), shape, axis, at, at + 1);
                       });
}

Variable Variable::operator[](int64_t index) const { return select(*this, 0, index); }
Variable Variable::reshape(const Shape& shape) const { return bs::reshape(*this, shape); }

}  // namespace bs
