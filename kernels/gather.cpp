#include <bs/kernels/gather.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/where.h>

#include <algorithm>

namespace bs {

namespace {

/// The extents before `axis`, of it, and behind it.
Shape around(const Shape& shape, int axis) {
  return {shape.slice(0, axis).product(), shape[axis],
          shape.slice(axis + 1, shape.rank()).product()};
}

void check_index_dtype(const char* op, const Tensor& index) {
  if (index.dtype() != i64 && index.dtype() != i32)
    detail::unsupported_dtype(op, index.dtype(), "i64 or i32");
}

/// The axis, from 0 on, after a look at whether index fits x.
int checked(const char* op, const Shape& x, const Tensor& index, int axis) {
  check_index_dtype(op, index);
  const int at = normalize_axis(op, axis, x.rank());
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == at || index.size(i) <= x[i];
  BS_CHECK(fits, "{}: index {} for shape {} along axis {}", op, index.shape(), x, at);
  return at;
}

/// The part of x beside which index lies: x without what goes beyond it along other axes.
Tensor beside(Tensor x, const Tensor& index, int axis) {
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis && index.size(i) < x.size(i)) x = x.slice(i, 0, index.size(i));
  return x;
}

/// Whether index is as long as x along every other axis.
bool covers(const Tensor& index, const Tensor& x, int axis) {
  bool all = true;
  for (int i = 0; i < x.rank(); ++i) all = all && (i == axis || index.size(i) == x.size(i));
  return all;
}

/// Index [outer, m, inner], a view of the one given where strides allow it.
Tensor three_axes(const Tensor& index, int axis) {
  return reshape(index, around(index.shape(), axis));
}

/// Writes to y by twin(index, source, part), a contiguous [outer, n, inner].
template <class Twin>
Tensor written(const Tensor& y, int axis, const Tensor& index, const Tensor& source, Twin twin) {
  if (index.numel() == 0) return y;
  const Tensor part = beside(y, index, axis), dense = contiguous(part);
  twin(three_axes(index, axis), contiguous(source).view(around(index.shape(), axis)),
       dense.view(around(dense.shape(), axis)));
  if (!dense.shares_storage(y)) copy(dense, part);
  return y;
}

void check_source(const char* op, const Tensor& x, const Tensor& index, const Tensor& source) {
  check_same_device(op, x, index);
  check_same_device(op, x, source);
  check_same_dtype(op, x, source);
  BS_CHECK(source.shape() == index.shape(), "{}: source {} for index {}", op, source.shape(),
           index.shape());
}

/// Makes y of x, of zeros where that is undefined, and of what is added to it.
Tensor added(const char* op, const Tensor& x, const Tensor& y, int axis, const Tensor& index,
             const Tensor& source) {
  const int at = checked(op, y.shape(), index, axis);
  check_source(op, y, index, source);
  if (y.dtype() == boolean || y.dtype() == u8)
    detail::unsupported_dtype(op, y.dtype(), "floats, i64 or i32");
  if (index.numel() > 0 && covers(index, y, at) && (!x.defined() || x.is_contiguous())) {
    const Shape from = around(index.shape(), at), to = around(y.shape(), at);
    BS_DISPATCH(y.device(), scatter_add, x.defined() ? x.view(to) : x, three_axes(index, at),
                contiguous(source).view(from), y.view(to));
    return y;
  }
  if (x.defined()) {
    copy(x, y);
  } else {
    fill(y, 0);
  }
  return written(y, at, index, source, [](const Tensor& i, const Tensor& more, const Tensor& part) {
    BS_DISPATCH(part.device(), scatter_add, part, i, more, part);
  });
}

}  // namespace

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  const int at = checked("gather", x.shape(), index, axis);
  check_same_device("gather", x, index);
  Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Tensor part = contiguous(beside(x, index, at));
  BS_DISPATCH(x.device(), gather, part.view(around(part.shape(), at)), three_axes(index, at),
              y.view(around(y.shape(), at)));
  return y;
}

Tensor gather_backward(const Tensor& dy, const Shape& shape, int axis, const Tensor& index) {
  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  return added("gather_backward", {}, dx, axis, index, dy);
}

namespace {

/// Makes y of x, of zeros where that is undefined, and of what is written to it: source, dense or
/// one number that is seen everywhere.
Tensor replaced(const Tensor& x, const Tensor& y, int axis, const Tensor& index,
                const Tensor& source) {
  if (index.numel() > 0 && covers(index, y, axis) && (!x.defined() || x.is_contiguous())) {
    const Shape from = around(index.shape(), axis), to = around(y.shape(), axis);
    BS_DISPATCH(y.device(), scatter, x.defined() ? x.view(to) : x, three_axes(index, axis),
                source.numel() == 1 ? source.view({1, 1, 1}).expand(from) : source.view(from),
                y.view(to));
    return y;
  }
  if (x.defined()) {
    copy(x, y);
  } else {
    fill(y, 0);
  }
  const Tensor each = source.numel() == 1 ? source.expand(index.shape()) : source;
  return written(y, axis, index, each, [](const Tensor& i, const Tensor& from, const Tensor& part) {
    BS_DISPATCH(part.device(), scatter, part, i, from, part);
  });
}

}  // namespace

Tensor scatter(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
  const int at = checked("scatter", x.shape(), index, axis);
  check_source("scatter", x, index, source);
  return replaced(x, Tensor::empty(x.shape(), x.dtype(), x.device()), at, index,
                  contiguous(source));
}

Tensor detail::scatter_to_zeros(const char* op, const Shape& shape, int axis, const Tensor& index,
                                const Tensor& source) {
  const int at = checked(op, shape, index, axis);
  const Tensor y = Tensor::empty(shape, source.dtype(), source.device());
  check_source(op, y, index, source);
  return replaced({}, y, at, index, contiguous(source));
}

Tensor scatter(const Tensor& x, int axis, const Tensor& index, Scalar source) {
  const int at = checked("scatter", x.shape(), index, axis);
  check_same_device("scatter", x, index);
  const Shape one = Dims::filled(x.rank(), 1);
  return replaced(x, Tensor::empty(x.shape(), x.dtype(), x.device()), at, index,
                  full(one, source.to<double>(), x.dtype(), x.device()));
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  return added("scatter_add", x, y, axis, index, source);
}

namespace {

/// Indices [count] of `axis` as an index of source's shape, without a copy.
Tensor spread(const char* op, const Tensor& x, int axis, const Tensor& indices,
              const Tensor& source) {
  const int at = normalize_axis(op, axis, x.rank());
  Shape expected = x.shape();
  BS_CHECK(indices.rank() == 1, "{}: indices of shape {} are not a vector", op, indices.shape());
  expected[at] = indices.size(0);
  BS_CHECK(source.shape() == expected, "{}: source {}, expected {}", op, source.shape(), expected);
  Shape column = Dims::filled(x.rank(), 1);
  column[at] = indices.size(0);
  return reshape(indices, column).expand(expected);
}

}  // namespace

Tensor index_add(const Tensor& x, int axis, const Tensor& indices, const Tensor& source) {
  const char* op = "index_add";
  const Tensor index = spread(op, x, axis, indices, source);
  if (!is_floating(x.dtype())) return scatter_add(x, axis, index, source);
  check_index_dtype(op, indices);
  check_source(op, x, index, source);
  const int64_t extent = x.size(axis);
  // The backward of index_select passes over what lies outside.
  BS_CHECK(indices.numel() == 0 || x.device().is_cuda() ||
               (amin(indices).item() >= 0 && amax(indices).item() < static_cast<double>(extent)),
           "{}: indices from {} to {} are not within [0, {})", op, amin(indices).item(),
           amax(indices).item(), extent);
  if (source.numel() == 0) return clone(x);
  const int at = normalize_axis(op, axis, x.rank());
  const Shape whole = around(x.shape(), at);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.numel() > 0)
    BS_DISPATCH(x.device(), index_select_backward, contiguous(x).view(whole),
                contiguous(source).view(around(source.shape(), at)), contiguous(indices),
                y.view(whole), int64_t{-1});
  return y;
}

Tensor index_copy(const Tensor& x, int axis, const Tensor& indices, const Tensor& source) {
  const char* op = "index_copy";
  const Tensor index = spread(op, x, axis, indices, source);
  check_index_dtype(op, indices);
  check_source(op, x, index, source);
  if (source.numel() == 0) return clone(x);
  const int at = normalize_axis(op, axis, x.rank());
  const Shape whole = around(x.shape(), at);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  BS_DISPATCH(x.device(), index_copy, contiguous(x).view(whole), contiguous(indices),
              contiguous(source).view(around(source.shape(), at)), y.view(whole));
  return y;
}

Tensor take(const Tensor& x, const Tensor& indices) {
  const Tensor flat = reshape(x, {x.numel()});
  return index_select(flat, 0, reshape(indices, {indices.numel()})).view(indices.shape());
}

Tensor index_rows(const char* op, const Shape& shape, const std::vector<Tensor>& indices) {
  BS_CHECK(!indices.empty() && static_cast<int>(indices.size()) <= shape.rank(),
           "{}: {} index tensors for shape {}", op, indices.size(), shape);
  Tensor rows, inside;
  for (size_t i = 0; i < indices.size(); ++i) {
    const Tensor& each = indices[i];
    check_index_dtype(op, each);
    const int64_t extent = shape[static_cast<int>(i)];
    if (each.device().is_cpu() && each.numel() > 0) {
      const double low = amin(each).item(), high = amax(each).item();
      BS_CHECK(low >= 0 && high < static_cast<double>(extent),
               "{}: indices from {} to {} of axis {} are not within [0, {})", op, low, high, i,
               extent);
    }
    Tensor wide = cast(each, i64);
    if (indices.size() == 1) return wide;
    const Tensor valid = mul(ge(wide, 0), lt(wide, extent));
    rows = i == 0 ? wide : add(mul(rows, extent), wide);
    inside = i == 0 ? valid : mul(inside, valid);
  }
  return where(inside, rows, -1);
}

namespace {

/// x as [rows, rest], its first `leading` axes joined.
Tensor as_rows(const Tensor& x, size_t leading) {
  const int k = static_cast<int>(leading);
  return reshape(x, {x.shape().slice(0, k).product(), x.shape().slice(k, x.rank()).product()});
}

Shape indexed_shape(const Shape& rows, const Shape& x, size_t leading) {
  Shape shape = rows;
  for (int i = static_cast<int>(leading); i < x.rank(); ++i) shape.push_back(x[i]);
  return shape;
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Tensor>& indices) {
  const Tensor rows = index_rows("index", x.shape(), indices);
  return index_select(as_rows(x, indices.size()), 0, reshape(rows, {rows.numel()}))
      .view(indexed_shape(rows.shape(), x.shape(), indices.size()));
}

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 bool accumulate) {
  check_same_dtype("index_put", x, values);
  const Tensor rows = index_rows("index_put", x.shape(), indices);
  const Shape shape = indexed_shape(rows.shape(), x.shape(), indices.size());
  BS_CHECK(broadcast_shapes("index_put", values.shape(), shape) == shape,
           "index_put: values {} for indexed elements {}", values.shape(), shape);
  const Tensor table = as_rows(x, indices.size());
  const Tensor source = reshape(values.expand(shape), {rows.numel(), table.size(1)});
  const Tensor at = reshape(rows, {rows.numel()});
  const Tensor y = accumulate ? index_add(table, 0, at, source) : index_copy(table, 0, at, source);
  return y.view(x.shape());
}

}  // namespace bs
