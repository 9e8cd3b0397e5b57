#include <bs/kernels/concat.h>
#include <bs/kernels/concat_rows.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/pad_axes.h>

#include <algorithm>

namespace bs {

namespace {

/// Throws unless `part` can stand beside `first` along `axis`.
void check_fits(const Tensor& first, const Tensor& part, int axis) {
  check_same_dtype("concat", first, part);
  check_same_device("concat", first, part);
  Shape expected = first.shape();
  if (part.rank() == first.rank()) expected[axis] = part.size(axis);
  BS_CHECK(part.shape() == expected, "concat: shapes {} and {} differ beside axis {}",
           first.shape(), part.shape(), axis);
}

/// Joins parts that lie densely, all at once; says whether they do.
bool join_rows(std::span<const Tensor> parts, int axis, const Tensor& y) {
  constexpr int64_t most_bytes = int64_t{1} << 31;  // 32 bits number them
  const int64_t rows = y.shape().slice(0, axis).product();
  std::vector<Tensor> matrices;
  for (const Tensor& part : parts) {
    if (!part.is_contiguous()) return false;
    matrices.push_back(part.view({rows, part.numel() / rows}));
  }
  if (y.numel() * static_cast<int64_t>(size_of(y.dtype())) >= most_bytes) return false;
  BS_DISPATCH(y.device(), concat, matrices, y.view({rows, y.numel() / rows}));
  return true;
}

/// Sets a view of any strides to zero.
void clear(const Tensor& view) {
  copy(zeros({}, view.dtype(), view.device()).expand(view.shape()), view);
}

}  // namespace

Tensor concat(std::span<const Tensor> parts, int axis) {
  BS_CHECK(!parts.empty(), "concat: no tensors");
  const Tensor& first = parts.front();
  axis = normalize_axis("concat", axis, first.rank());
  Shape shape = first.shape();
  shape[axis] = 0;
  for (const Tensor& part : parts) {
    check_fits(first, part, axis);
    shape[axis] += part.size(axis);
  }
  Tensor y = Tensor::empty(shape, first.dtype(), first.device());
  if (y.numel() > 0 && join_rows(parts, axis, y)) return y;
  int64_t at = 0;
  for (const Tensor& part : parts) {
    copy(part, y.slice(axis, at, at + part.size(axis)));
    at += part.size(axis);
  }
  return y;
}

Tensor stack(std::span<const Tensor> parts, int axis) {
  BS_CHECK(!parts.empty(), "stack: no tensors");
  axis = normalize_axis("stack", axis, parts.front().rank() + 1);
  std::vector<Tensor> slices;
  for (const Tensor& part : parts) {
    check_same_shape("stack", parts.front(), part);
    slices.push_back(part.unsqueeze(axis));
  }
  return concat(slices, axis);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int axis) {
  axis = normalize_axis("split", axis, x.rank());
  int64_t sum = 0;
  for (int64_t size : sizes) {
    BS_CHECK(size >= 0, "split: a piece of size {}", size);
    BS_CHECK(!__builtin_add_overflow(sum, size, &sum),
             "split: pieces of more than 64 bits hold on axis {} of {}", axis, x.shape());
  }
  BS_CHECK(sum == x.size(axis), "split: pieces of {} in all on axis {} of {}", sum, axis,
           x.shape());
  std::vector<Tensor> pieces;
  int64_t at = 0;
  for (int64_t size : sizes) {
    pieces.push_back(x.slice(axis, at, at + size));
    at += size;
  }
  return pieces;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int axis) {
  return split(x, chunk_sizes(x.shape(), count, axis), axis);
}

std::vector<int64_t> chunk_sizes(const Shape& shape, int64_t count, int axis) {
  axis = normalize_axis("chunk", axis, shape.rank());
  constexpr int64_t most = 1 << 24;
  BS_CHECK(count > 0 && shape[axis] % count == 0 && count <= most,
           "chunk: {} equal pieces of axis {} of {}; at most {} are made", count, axis, shape,
           most);
  return std::vector<int64_t>(static_cast<size_t>(count), shape[axis] / count);
}

Tensor split_backward(std::span<const Tensor> dys, const std::vector<int64_t>& sizes, int axis) {
  const auto known =
      std::find_if(dys.begin(), dys.end(), [](const Tensor& t) { return t.defined(); });
  BS_CHECK(known != dys.end() && dys.size() == sizes.size(),
           "split_backward: {} gradients, of which one at least is defined, for {} pieces",
           dys.size(), sizes.size());
  axis = normalize_axis("split_backward", axis, known->rank());
  bool whole = true;  // then they are joined in one pass
  for (size_t i = 0; i < dys.size(); ++i)
    whole = whole && dys[i].defined() && dys[i].rank() == known->rank() &&
            dys[i].size(axis) == sizes[i];
  if (whole) return concat(dys, axis);
  Shape shape = known->shape();
  shape[axis] = 0;
  for (const int64_t size : sizes)
    BS_CHECK(size >= 0 && !__builtin_add_overflow(shape[axis], size, &shape[axis]),
             "split_backward: a piece of size {} after {}", size, shape[axis]);
  Tensor dx = Tensor::empty(shape, known->dtype(), known->device());
  const std::vector<Tensor> pieces = split(dx, sizes, axis);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (dys[i].defined()) {
      copy(dys[i], pieces[i]);
    } else {
      clear(pieces[i]);
    }
  }
  return dx;
}

Tensor slice_backward(const Tensor& dy, const Shape& shape, int axis, int64_t begin, int64_t end,
                      int64_t step) {
  if (dy.shape() == shape && step == 1) return dy;
  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  axis = normalize_axis("slice_backward", axis, shape.rank());
  check_same_shape("slice_backward", dy, dx.slice(axis, begin, end, step));
  AxisPlaces places{dy.shape(), Dims::filled(shape.rank(), 0), Dims::filled(shape.rank(), 1)};
  const int64_t extent = shape[axis];
  places.low[axis] = std::clamp<int64_t>(begin < 0 ? begin + extent : begin, 0, extent);
  places.step[axis] = std::min(step, std::max<int64_t>(extent, 1));
  if (dx.numel() > 0) BS_DISPATCH(dx.device(), pad_axes, dy, places, 0.0, dx);
  return dx;
}

}  // namespace bs
