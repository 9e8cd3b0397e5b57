#include <bs/autograd/gather.h>

#include <bs/autograd/index_select.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/reduce.h>

namespace bs {

Variable gather(const Variable& x, int axis, const Tensor& index) {
  return tape().record("gather", {x}, gather(x.data(), axis, index),
                       [shape = x.shape(), axis, index = SavedTensor(index)](const Tensor& dy) {
                         return Grads{gather_backward(dy, shape, axis, index)};
                       });
}

Variable scatter(const Variable& x, int axis, const Tensor& index, const Variable& source) {
  return tape().record("scatter", {x, source}, scatter(x.data(), axis, index, source.data()),
                       [axis, index = SavedTensor(index)](const Tensor& dy) {
                         return Grads{scatter(dy, axis, index, 0), gather(dy, axis, index)};
                       });
}

Variable scatter(const Variable& x, int axis, const Tensor& index, Scalar source) {
  return tape().record("scatter", {x}, scatter(x.data(), axis, index, source),
                       [axis, index = SavedTensor(index)](const Tensor& dy) {
                         return Grads{scatter(dy, axis, index, 0)};
                       });
}

Variable scatter_add(const Variable& x, int axis, const Tensor& index, const Variable& source) {
  return tape().record("scatter_add", {x, source},
                       scatter_add(x.data(), axis, index, source.data()),
                       [axis, index = SavedTensor(index)](const Tensor& dy) {
                         return Grads{dy, gather(dy, axis, index)};
                       });
}

Variable index_add(const Variable& x, int axis, const Tensor& indices, const Variable& source) {
  return tape().record("index_add", {x, source}, index_add(x.data(), axis, indices, source.data()),
                       [axis, indices = SavedTensor(indices)](const Tensor& dy) {
                         return Grads{dy, index_select(dy, axis, indices)};
                       });
}

Variable index_copy(const Variable& x, int axis, const Tensor& indices, const Variable& source) {
  return tape().record(
      "index_copy", {x, source}, index_copy(x.data(), axis, indices, source.data()),
      [axis, indices = SavedTensor(indices), shape = source.shape()](const Tensor& dy) {
        const Tensor none = zeros(shape, dy.dtype(), dy.device());
        return Grads{index_copy(dy, axis, indices, none), index_select(dy, axis, indices)};
      });
}

Variable take(const Variable& x, const Tensor& indices) {
  const Variable flat = reshape(x, {x.data().numel()});
  const Tensor at = contiguous(indices).view({indices.numel()});
  return reshape(index_select(flat, 0, at), indices.shape());
}

Variable index(const Variable& x, const std::vector<Tensor>& indices) {
  return tape().record("index", {x}, index(x.data(), indices),
                       [shape = x.shape(), indices](const Tensor& dy) {
                         const Tensor none = zeros(shape, dy.dtype(), dy.device());
                         return Grads{index_put(none, indices, dy, true)};
                       });
}

Variable index_put(const Variable& x, const std::vector<Tensor>& indices, const Variable& values,
                   bool accumulate) {
  return tape().record("index_put", {x, values},
                       index_put(x.data(), indices, values.data(), accumulate),
                       [indices, accumulate, shape = values.shape()](const Tensor& dy) {
                         const Tensor none = zeros(shape, dy.dtype(), dy.device());
                         return Grads{accumulate ? dy : index_put(dy, indices, none),
                                      sum_to(index(dy, indices), shape)};
                       });
}

}  // namespace bs
