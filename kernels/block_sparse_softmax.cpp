#include <bs/kernels/block_sparse_softmax.h>
#include <bs/kernels/copy.h>

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

}  // namespace

SparseTensor block_sparse_softmax(const SparseTensor& s, const BlockSparseSoftmaxOptions& options) {
  check_sparse(forward_name, s);
  BlockSparseSoftmaxOptions resolved = options;
  if (options.key_padding_mask.defined() && s.values.numel() > 0)
    resolved.key_padding_mask = resolved_mask(s, options.key_padding_mask);
  const Tensor y = Tensor::empty_like(s.values);
  if (y.numel() > 0)
    BS_DISPATCH(y.device(), block_sparse_softmax, contiguous(s.values), *s.layout, y, resolved);
  return {s.layout, y};
}

Tensor block_sparse_softmax_backward(const SparseTensor& y, const Tensor& dy, double scale) {
  check_sparse(backward_name, y);
  check_same_shape(backward_name, y.values, dy);
  check_same_dtype(backward_name, y.values, dy);
  check_same_device(backward_name, y.values, dy);
  Tensor dx = Tensor::empty_like(dy);
  if (dx.numel() > 0)
    BS_DISPATCH(dx.device(), block_sparse_softmax_backward, contiguous(y.values), contiguous(dy),
                *y.layout, dx, scale);
  return dx;
}

}  // namespace bs
