#include <bs/kernels/block_sparse_softmax.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
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
  const DType dtype = y.values.dtype() == f64 ? f64 : f32;
  const SparseTensor wide{y.layout, cast(y.values, dtype)};
  Tensor ds = block_sparse_softmax_backward(wide, cast(dy, dtype));
  const int batch = ds.rank() - 3, rank = batch + matrix_rank(*y.layout);
  Shape shape = bias_shape;
  while (shape.rank() < rank) shape.insert(0, 1);
  Shape summed = ds.shape();
  for (int axis = 0; axis < batch; ++axis) summed[axis] = shape[axis];
  ds = to_dense({y.layout, sum_to(ds, summed)});
  return cast(sum_to(ds, shape).view(bias_shape), y.values.dtype());
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
