#include <bs/kernels/sort.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/reduce_kinds.h>

namespace bs {

namespace {

/// Positions along `axis`, which stays where it is: `count` of each row, by a twin that takes rows
/// [rows, n] and gives [rows, count].
template <class Twin>
Tensor positions(const Tensor& x, int64_t count, int axis, Twin twin) {
  const int64_t n = x.size(axis);
  const Tensor rows = contiguous(x.transpose(axis, -1));
  Shape shape = rows.shape();
  shape[-1] = count;
  const Tensor indices = Tensor::empty(shape, i64, x.device());
  if (indices.numel() > 0)
    twin(rows.view({rows.numel() / n, n}), indices.view({indices.numel() / count, count}));
  return contiguous(indices.transpose(axis, -1));
}

void check_count(const char* op, const Tensor& x, int64_t k, int axis) {
  BS_CHECK(k >= 0 && k <= x.size(axis), "{}: {} elements of an axis of {}", op, k, x.size(axis));
}

/// The first k positions of the order along `axis`.
Tensor order(const char* op, const Tensor& x, int64_t k, int axis, bool descending) {
  const int at = normalize_axis(op, axis, x.rank());
  check_count(op, x, k, at);
  return positions(x, k, at, [&](const Tensor& rows, const Tensor& indices) {
    BS_DISPATCH(x.device(), argsort, rows, indices, descending);
  });
}

/// Both without `axis`, of extent 1, unless it is kept.
Indexed shrunk(const Indexed& y, int axis, bool keepdim) {
  return keepdim ? y : Indexed{y.values.squeeze(axis), y.indices.squeeze(axis)};
}

/// The largest elements along axis `at`, or the smallest, and their places.
Indexed extremum(const Tensor& x, int at, bool keepdim, bool smallest) {
  const int64_t n = x.size(at);
  if ((!is_floating(x.dtype()) && x.dtype() != i64) || n < 2 || x.numel() == 0) {
    const Tensor indices = smallest ? argmin(x, at, true) : argmax(x, at, true);
    return shrunk({gather(x, at, indices), indices}, at, keepdim);
  }
  int64_t inner = 1;
  for (int i = at + 1; i < x.rank(); ++i) inner *= x.size(i);
  Shape shape = x.shape();
  shape[at] = 1;
  const Indexed y = {Tensor::empty(shape, x.dtype(), x.device()),
                     Tensor::empty(shape, i64, x.device())};
  const Tensor of = contiguous(x).view({x.numel() / (n * inner), n, inner});
  if (smallest) {
    BS_DISPATCH(x.device(), min_with_place, of, y.values, y.indices);
  } else {
    BS_DISPATCH(x.device(), max_with_place, of, y.values, y.indices);
  }
  return shrunk(y, at, keepdim);
}

}  // namespace

Tensor argsort(const Tensor& x, int axis, bool descending) {
  const int at = normalize_axis("argsort", axis, x.rank());
  return order("argsort", x, x.size(at), at, descending);
}

Indexed sort(const Tensor& x, int axis, bool descending) {
  const Tensor indices = argsort(x, axis, descending);
  return {gather(x, axis, indices), indices};
}

Indexed topk(const Tensor& x, int64_t k, int axis, bool largest) {
  const Tensor indices = order("topk", x, k, axis, largest);
  return {gather(x, axis, indices), indices};
}

Indexed kthvalue(const Tensor& x, int64_t k, int axis, bool keepdim) {
  BS_CHECK(k >= 1, "kthvalue: k is {}; it counts from 1", k);
  const int at = normalize_axis("kthvalue", axis, x.rank());
  check_count("kthvalue", x, k, at);
  const Tensor indices = positions(x, 1, at, [&](const Tensor& rows, const Tensor& places) {
    BS_DISPATCH(x.device(), kthvalue, rows, places, k);
  });
  return shrunk({gather(x, at, indices), indices}, at, keepdim);
}

Indexed max(const Tensor& x, int axis, bool keepdim) {
  return extremum(x, normalize_axis("max", axis, x.rank()), keepdim, false);
}

Indexed min(const Tensor& x, int axis, bool keepdim) {
  return extremum(x, normalize_axis("min", axis, x.rank()), keepdim, true);
}

Tensor argmin(const Tensor& x, const Axes& axes, bool keepdim) {
  return place_of_extremum("argmin", x, axes, keepdim, true);
}

Tensor sort_backward(const Tensor& dy, const Tensor& indices, const Shape& shape, int axis) {
  return detail::scatter_to_zeros("sort_backward", shape, axis, indices, dy);
}

}  // namespace bs
