#include <bs/autograd/at.h>

#include <bs/autograd/index_select.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {

Tensor slice(const Tensor& x, int axis, const Slice& s) {
  return x.slice(axis, s.begin, s.end, s.step);
}
Variable slice(const Variable& x, int axis, const Slice& s) {
  return bs::slice(x, axis, s.begin, s.end, s.step);
}

/// Where in a part a Tensor chooses, and what.
struct Choice {
  Tensor from;  ///< as it was written, or undefined
  int axis = 0;

  bool is_mask() const { return from.dtype() == boolean; }
  /// How many axes it stands for.
  int axes() const { return is_mask() ? from.rank() : 1; }
  Tensor positions() const { return is_mask() ? flat_nonzero(from) : from; }
};

int axes_of(const AxisIndex& index) {
  if (const auto* tensor = std::get_if<Tensor>(&index.value())) return Choice{*tensor}.axes();
  return std::holds_alternative<int64_t>(index.value()) ||
         std::holds_alternative<Slice>(index.value());
}

void check_counts(std::initializer_list<AxisIndex> indices, const Shape& shape) {
  int named = 0, ellipses = 0, tensors = 0;
  for (const AxisIndex& index : indices) {
    named += axes_of(index);
    ellipses += std::holds_alternative<Ellipsis>(index.value());
    tensors += std::holds_alternative<Tensor>(index.value());
  }
  BS_CHECK(named <= shape.rank(), "at: {} indices for shape {}", named, shape);
  BS_CHECK(ellipses <= 1, "at: {} ellipses for shape {}", ellipses, shape);
  BS_CHECK(tensors <= 1, "at: {} masks or lists of positions, of which one is allowed; see index",
           tensors);
}

Choice checked(const Tensor& from, int axis, const Shape& shape) {
  Choice choice{from, axis};
  BS_CHECK(from.defined(), "at: an undefined tensor as an index");
  if (choice.is_mask()) {
    BS_CHECK(from.shape() == shape.slice(axis, axis + from.rank()),
             "at: mask {} at axis {} of shape {}", from.shape(), axis, shape);
  } else {
    BS_CHECK((from.dtype() == i64 || from.dtype() == i32) && from.rank() == 1,
             "at: {} {} as an index; a mask of bool, or a vector of i64 or i32, is one",
             from.dtype(), from.shape());
  }
  return choice;
}

/// One walk over the indices, for tensors and variables alike. All of it is views: the axes of a
/// Tensor among the indices stay whole, and `choice` says which they are.
template <class X>
X part(X x, std::initializer_list<AxisIndex> indices, Choice& choice) {
  const Shape shape = x.shape();
  check_counts(indices, shape);
  int named = 0;
  for (const AxisIndex& index : indices) named += axes_of(index);
  int axis = 0;
  for (const AxisIndex& index : indices) {
    if (const auto* position = std::get_if<int64_t>(&index.value())) {
      const int64_t n = x.size(axis);
      BS_CHECK(*position >= -n && *position < n, "at: position {} of an axis of {} in shape {}",
               *position, n, shape);
      x = select(x, axis, *position < 0 ? *position + n : *position);
    } else if (const auto* range = std::get_if<Slice>(&index.value())) {
      x = slice(x, axis++, *range);
    } else if (std::holds_alternative<None>(index.value())) {
      x = unsqueeze(x, axis++);
    } else if (const auto* tensor = std::get_if<Tensor>(&index.value())) {
      choice = checked(*tensor, axis, x.shape());
      axis += choice.axes();
    } else {
      axis += shape.rank() - named;
    }
  }
  return x;
}

/// The shape in which the axes of the choice are one.
Shape joined(const Shape& shape, const Choice& choice) {
  Shape result = shape.slice(0, choice.axis);
  const int end = choice.axis + choice.axes();
  result.push_back(shape.slice(choice.axis, end).product());
  for (int i = end; i < shape.rank(); ++i) result.push_back(shape[i]);
  return result;
}

template <class X>
X chosen(const X& x, std::initializer_list<AxisIndex> indices) {
  Choice choice;
  X whole = part(x, indices, choice);
  if (!choice.from.defined()) return whole;
  return index_select(reshape(whole, joined(whole.shape(), choice)), choice.axis,
                      choice.positions());
}

/// Writes one value wherever a mask is true, without asking how often that is.
void write_where(const Tensor& to, const Choice& choice, const Tensor& value) {
  Shape mask = Dims::filled(to.rank(), 1);
  for (int i = 0; i < choice.axes(); ++i) mask[choice.axis + i] = choice.from.size(i);
  copy(where(reshape(choice.from, mask), cast(value, to.dtype()), to), to);
}

}  // namespace

Variable at(const Variable& x, std::initializer_list<AxisIndex> indices) {
  return chosen(x, indices);
}

Tensor at(const Tensor& x, std::initializer_list<AxisIndex> indices) { return chosen(x, indices); }

void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, const Tensor& values) {
  Choice choice;
  const Tensor to = part(x, indices, choice);
  if (choice.from.defined() && choice.is_mask() && values.rank() == 0)
    return write_where(to, choice, values);
  Shape shape = to.shape();
  Tensor positions;
  if (choice.from.defined()) {
    positions = choice.positions();
    shape = joined(shape, choice);
  }
  Shape wanted = shape;
  if (positions.defined()) wanted[choice.axis] = positions.size(0);
  BS_CHECK(broadcast_shapes("assign", values.shape(), wanted) == wanted,
           "assign: values {} into a part {}", values.shape(), wanted);
  const Tensor source = values.expand(wanted);
  if (!positions.defined()) return copy(source, to);
  const Tensor written =
      index_copy(reshape(to, shape), choice.axis, positions, cast(source, to.dtype()));
  copy(written.view(to.shape()), to);
}

void assign(const Tensor& x, std::initializer_list<AxisIndex> indices, double value) {
  assign(x, indices, full(Shape(), value, x.dtype(), x.device()));
}

}  // namespace bs
