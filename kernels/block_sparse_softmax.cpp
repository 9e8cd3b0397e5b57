#include <bs/kernels/block_sparse_softmax.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/where.h>

#include <limits>

namespace bs {

namespace {

constexpr const char* forward_name = "block_sparse_softmax";
constexpr const char* backward_name = "block_sparse_softmax_backward";

/// The mask as [rows, width], dense: one row for all matrices, or one for each entry of the batch.
Tensor resolved_mask(const SparseTensor& s, const Tensor& mask) {
  const int64_t width = s.layout->width();
  BS_CHECK(mask.dtype() == boolean, "{}: key_padding_mask is {}, not bool", forward_name,
           mask.dtype());
  check_same_device(forward_name, s.values, mask);
  const bool shared = mask.shape() == Shape({width}) || mask.shape() == Shape({1, width});
  BS_CHECK(shared || (s.values.rank() > 3 && mask.shape() == Shape({s.values.size(0), width})),
           "{}: key_padding_mask {} is neither [{}] nor [batch, {}] for values {}", forward_name,
           mask.shape(), width, width, s.values.shape());
  return contiguous(mask).view({-1, width});
}

/// Matrices that a kernel sums for a bias, at most.
constexpr int64_t most_summed = 4096;

constexpr double hidden = -std::numeric_limits<double>::infinity();

/// The axes of to_dense(s) behind those of the batch: [heads, height, width], heads where there are
/// several.
int matrix_rank(const Layout& layout) { return layout.heads() > 1 ? 3 : 2; }

/// The blocks of something dense that broadcasts to to_dense(s): axes of the batch stay as they
/// are.
Tensor sampled(const char* name, const SparseTensor& s, const Tensor& dense, DType dtype) {
  const Layout& l = *s.layout;
  const int batch = s.values.rank() - 3, rank = batch + matrix_rank(l);
  BS_CHECK(is_floating(dense.dtype()), "{}: {} is {}, not floating", forward_name, name,
           dense.dtype());
  check_same_device(forward_name, s.values, dense);
  bool fits = dense.rank() >= 2 && dense.rank() <= rank && dense.size(-2) == l.height() &&
              dense.size(-1) == l.width();
  Tensor x = dense;
  while (fits && x.rank() < rank) x = x.unsqueeze(0);
  for (int axis = 0; fits && axis < rank - 2; ++axis) {
    const int64_t whole = axis < batch ? s.values.size(axis) : l.heads();
    fits = x.size(axis) == 1 || x.size(axis) == whole;
  }
  BS_CHECK(fits, "{}: {} {} does not broadcast to the dense matrix of values {}", forward_name,
           name, dense.shape(), s.values.shape());
  Shape shape = x.shape();
  if (l.heads() > 1) shape[batch] = l.heads();
  return to_sparse(cast(x, dtype).expand(shape), s.layout).values;
}

/// x + y, where y's -infinity hides whatever x is.
Tensor added(const Tensor& x, const Tensor& y) { return where(eq(y, hidden), hidden, add(x, y)); }

/// Scores in the type of sums, with all that is added to them and what the mask of elements hides.
Tensor scores_of(const SparseTensor& s, const BlockSparseSoftmaxOptions& o) {
  const DType dtype = s.values.dtype() == f64 ? f64 : f32;
  Tensor x = mul(cast(s.values, dtype), o.scale);
  if (o.bias.defined()) x = added(x, sampled("bias", s, o.bias, dtype));
  if (o.key_bias.defined()) {
    const Layout& l = *s.layout;
    const Tensor& keys = o.key_bias;
    BS_CHECK(keys.rank() > 0 && keys.rank() <= 2 && keys.size(-1) == l.width(),
             "{}: key_bias {} is neither [{}] nor [batch, {}]", forward_name, keys.shape(),
             l.width(), l.width());
    Tensor rows = keys;
    if (keys.rank() == 2)  // behind the batch come the axes between it and the columns
      for (int i = 1; i < s.values.rank() - 3 + matrix_rank(l) - 1; ++i) rows = rows.unsqueeze(1);
    if (rows.rank() == 1) rows = rows.unsqueeze(0);
    Shape shape = rows.shape();
    shape[shape.rank() - 2] = l.height();
    x = added(x, sampled("key_bias", s, rows.expand(shape), dtype));
  }
  const Tensor& mask = o.attention_mask;
  if (!mask.defined()) return x;
  BS_CHECK(mask.rank() == 2, "{}: attention_mask {} is not [height, width]", forward_name,
           mask.shape());
  if (mask.dtype() != boolean) return added(x, sampled("attention_mask", s, mask, dtype));
  return where(eq(sampled("attention_mask", s, cast(mask, dtype), dtype), 0.0), hidden, x);
}

/// Neighbouring axes of a batch that a bias shares, and what lies before and behind them.
struct SummedAxes {
  int begin = 0, end = 0;
  int64_t before = 1, summed = 1, after = 1;
};

/// The first such axes, of which the kernel can sum. The bias has axes behind those of the batch.
SummedAxes summed_axes(const Shape& batch, const Shape& bias) {
  SummedAxes a;
  const auto is_kept = [&](int axis) { return bias[axis] == batch[axis]; };
  while (a.begin < batch.rank() && is_kept(a.begin)) a.before *= batch[a.begin++];
  a.end = a.begin;
  while (a.end < batch.rank() && bias[a.end] == 1 && a.summed * batch[a.end] <= most_summed)
    a.summed *= batch[a.end++];
  for (int axis = a.end; axis < batch.rank(); ++axis) a.after *= batch[axis];
  return a;
}

}  // namespace

SparseTensor block_sparse_softmax(const SparseTensor& s, const BlockSparseSoftmaxOptions& options) {
  check_sparse(forward_name, s);
  BlockSparseSoftmaxOptions resolved = options;
  if (options.key_padding_mask.defined() && s.values.numel() > 0)
    resolved.key_padding_mask = resolved_mask(s, options.key_padding_mask);
  Tensor x = s.values;
  if (options.bias.defined() || options.key_bias.defined() || options.attention_mask.defined()) {
    x = scores_of(s, options);
    resolved.scale = 1;
  }
  if (resolved.scale <= 0) {  // kernels hide by -infinity, whose product with the scale it shall be
    x = mul(x, resolved.scale == 0 ? 0.0 : -1.0);
    resolved.scale = resolved.scale == 0 ? 1 : -resolved.scale;
  }
  const Tensor y = Tensor::empty_like(x);
  if (y.numel() > 0)
    BS_DISPATCH_WORK(y.device(), (Work{.density = s.layout->density()}), block_sparse_softmax,
                     contiguous(x), *s.layout, y, resolved);
  return {s.layout, cast(y, s.values.dtype())};
}

Tensor block_sparse_softmax_bias_gradient(const SparseTensor& y, const Tensor& dy,
                                          const Shape& bias_shape) {
  constexpr const char* op = "block_sparse_softmax_bias_gradient";
  check_sparse(op, y);
  check_same_shape(op, y.values, dy);
  check_same_dtype(op, y.values, dy);
  check_same_device(op, y.values, dy);
  const Layout& l = *y.layout;
  const int batch = dy.rank() - 3;
  Shape whole = dy.shape().slice(0, batch), shape = bias_shape;  // of the dense matrix
  if (l.heads() > 1) whole.push_back(l.heads());
  for (const int64_t side : {l.height(), l.width()}) whole.push_back(side);
  while (shape.rank() < whole.rank()) shape.insert(0, 1);
  bool fits = shape.rank() == whole.rank();
  for (int axis = 0; fits && axis < whole.rank(); ++axis)
    fits = shape[axis] == 1 || shape[axis] == whole[axis];
  BS_CHECK(fits, "{}: bias {} does not broadcast to the dense matrix {}", op, bias_shape, whole);
  const SummedAxes axes = summed_axes(whole.slice(0, batch), shape);
  Shape left = dy.shape(), all = left;  // what the kernel leaves to be summed, and what is asked
  for (int axis = axes.begin; axis < axes.end; ++axis) left[axis] = 1;
  for (int axis = 0; axis < batch; ++axis) all[axis] = whole[axis] = shape[axis];
  const bool is_all = left == all && shape == whole;

  const DType dtype = y.values.dtype(), sums = dtype == f64 ? f64 : f32;
  const Tensor ds = Tensor::empty(left, is_all ? dtype : sums, dy.device());
  if (ds.numel() > 0 && dy.numel() == 0) return zeros(bias_shape, dtype, dy.device());
  if (ds.numel() > 0) {
    const Shape blocks = dy.shape().slice(batch, batch + 3);
    const auto parted = [&](Dims parts) {
      for (const int64_t extent : blocks) parts.push_back(extent);
      return parts;
    };
    const int64_t before = axes.before, summed = axes.summed, after = axes.after;
    BS_DISPATCH(dy.device(), block_sparse_softmax_bias_gradient,
                contiguous(y.values).view(parted({before, summed, after})),
                contiguous(dy).view(parted({before, summed, after})), l,
                ds.view(parted({before, after})));
  }
  const Tensor dense = to_dense({y.layout, sum_to(ds, all)});
  return cast(sum_to(dense, shape).view(bias_shape), dtype);
}

Tensor block_sparse_softmax_backward(const SparseTensor& y, const Tensor& dy, double scale) {
  check_sparse(backward_name, y);
  check_same_shape(backward_name, y.values, dy);
  check_same_dtype(backward_name, y.values, dy);
  check_same_device(backward_name, y.values, dy);
  Tensor dx = Tensor::empty_like(dy);
  if (dx.numel() > 0)
    BS_DISPATCH_WORK(dx.device(), (Work{.density = y.layout->density()}),
                     block_sparse_softmax_backward, contiguous(y.values), contiguous(dy), *y.layout,
                     dx, scale);
  return dx;
}

}  // namespace bs
