#include <bs/autograd/at.h>

#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

namespace bs {

namespace {

Tensor slice(const Tensor& x, int axis, const Slice& s) {
  return x.slice(axis, s.begin, s.end, s.step);
}
Variable slice(const Variable& x, int axis, const Slice& s) {
  return bs::slice(x, axis, s.begin, s.end, s.step);
}

int64_t extent(const Variable& x, int axis) { return x.size(axis); }
int64_t extent(const Tensor& x, int axis) { return x.size(axis); }

/// One walk over the indices, for tensors and variables alike.
template <class X>
X part(X x, std::initializer_list<AxisIndex> indices) {
  const Shape shape = x.shape();
  int named = 0, ellipses = 0;
  for (const AxisIndex& index : indices) {
    ellipses += std::holds_alternative<Ellipsis>(index.value());
    named += std::holds_alternative<int64_t>(index.value()) ||
             std::holds_alternative<Slice>(index.value());
  }
  BS_CHECK(named <= shape.rank(), "at: {} indices for shape {}", named, shape);
  BS_CHECK(ellipses <= 1, "at: {} ellipses for shape {}", ellipses, shape);
  int axis = 0;
  for (const AxisIndex& index : indices) {
    if (const auto* position = std::get_if<int64_t>(&index.value())) {
      const int64_t n = extent(x, axis);
      BS_CHECK(*position >= -n && *position < n, "at: position {} of an axis of {} in shape {}",
               *position, n, shape);
      x = select(x, axis, *position < 0 ? *position + n : *position);
    } else if (const auto* range = std::get_if<Slice>(&index.value())) {
      x = slice(x, axis++, *range);
    } else if (std::holds_alternative<None>(index.value())) {
      x = unsqueeze(x, axis++);
    } else {
      axis += shape.rank() - named;
    }
  }
  return x;
}

}  // namespace

Variable at(const Variable& x, std::initializer_list<AxisIndex> indices) {
  return part(x, indices);
}

Tensor at(const Tensor& x, std::initializer_list<AxisIndex> indices) { return part(x, indices); }

void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, const Tensor& values) {
  const Tensor to = at(x, indices);
  BS_CHECK(broadcast_shapes("assign", values.shape(), to.shape()) == to.shape(),
           "assign: values {} into a part {}", values.shape(), to.shape());
  copy(values.expand(to.shape()), to);
}

void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, double value) {
  assign(x, indices, full(Shape(), value, x.dtype(), x.device()));
}

}  // namespace bs
