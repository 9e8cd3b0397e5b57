#include <bs/kernels/embedding.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/index_select.h>

namespace bs {

namespace {

Tensor as_vector(const char* op, const Tensor& indices) {
  if (indices.dtype() != i64 && indices.dtype() != i32)
    detail::unsupported_dtype(op, indices.dtype(), "i64 or i32");
  return contiguous(indices).view({indices.numel()});
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices) {
  BS_CHECK(weight.rank() == 2, "embedding: weight {} is not a matrix", weight.shape());
  if (!is_floating(weight.dtype()))
    detail::unsupported_dtype("embedding", weight.dtype(), "f64, f32, f16 or bf16");
  check_same_device("embedding", weight, indices);
  const Tensor flat = as_vector("embedding", indices);
  Shape shape = indices.shape();
  shape.push_back(weight.size(1));
  Tensor y = Tensor::empty(shape, weight.dtype(), weight.device());
  if (y.numel() > 0)
    BS_DISPATCH(weight.device(), index_select, contiguous(weight).unsqueeze(0), flat,
                y.view({1, flat.numel(), weight.size(1)}), "embedding");
  return y;
}

Tensor embedding_backward(const Tensor& dy, const Tensor& indices, int64_t rows,
                          int64_t padding_index) {
  BS_CHECK(
      dy.rank() == indices.rank() + 1 && dy.shape().slice(0, indices.rank()) == indices.shape(),
      "embedding_backward: dy {} for indices {}", dy.shape(), indices.shape());
  BS_CHECK(padding_index >= -1 && padding_index < rows,
           "embedding_backward: a padding_index of {} among {} rows", padding_index, rows);
  return index_select_backward(contiguous(dy).view({indices.numel(), dy.size(-1)}), 0,
                               as_vector("embedding_backward", indices), rows, padding_index);
}

}  // namespace bs
