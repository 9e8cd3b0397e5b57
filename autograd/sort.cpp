#include <bs/autograd/sort.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {

/// `squeezed`: the axis has disappeared from y.
IndexedVariable record(const char* name, const Variable& x, const Indexed& y, int axis,
                       bool squeezed) {
  const int at = normalize_axis(name, axis, x.rank());
  return {
      tape().record(
          name, {x}, y.values,
          [indices = SavedTensor(y.indices), shape = x.shape(), at, squeezed](const Tensor& dy) {
            if (!squeezed) return Grads{sort_backward(dy, indices, shape, at)};
            return Grads{sort_backward(dy.unsqueeze(at), indices.get().unsqueeze(at), shape, at)};
          }),
      y.indices};
}

}  // namespace

IndexedVariable sort(const Variable& x, int axis, bool descending) {
  return record("sort", x, sort(x.data(), axis, descending), axis, false);
}

IndexedVariable topk(const Variable& x, int64_t k, int axis, bool largest) {
  return record("topk", x, topk(x.data(), k, axis, largest), axis, false);
}

IndexedVariable kthvalue(const Variable& x, int64_t k, int axis, bool keepdim) {
  return record("kthvalue", x, kthvalue(x.data(), k, axis, keepdim), axis, !keepdim);
}

IndexedVariable max(const Variable& x, int axis, bool keepdim) {
  return record("max", x, max(x.data(), axis, keepdim), axis, !keepdim);
}

IndexedVariable min(const Variable& x, int axis, bool keepdim) {
  return record("min", x, min(x.data(), axis, keepdim), axis, !keepdim);
}

}  // namespace bs
