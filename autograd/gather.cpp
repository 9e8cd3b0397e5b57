#include <bs/autograd/gather.h>

#include <bs/autograd/index_select.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/reduce.h>

namespace bs {

namespace {

Grads all_of(const Tensor& a, const Tensor& b) { return {a, b}; }
VariableGrads all_of(const Variable& a, const Variable& b) { return {a, b}; }

/// A backward that is written alike for tensors and variables.
template <class F>
auto alike(F f) {
  return Twice{[f](const Tensor& dy) { return f(dy); },
               [f](const Recorded& r) { return f(r.dy()); }};
}

/// One list of indices an axis, which index() and index_put() take.
class SavedIndices {
 public:
  explicit SavedIndices(std::vector<Tensor> indices)
      : indices_(std::move(indices)),
        saved_(std::vector<Variable>(indices_.begin(), indices_.end())) {}
  const std::vector<Tensor>& get() const {
    saved_.check();
    return indices_;
  }

 private:
  std::vector<Tensor> indices_;
  SavedInputs saved_;
};

struct Gather {
  SavedTensor index;
  int axis;
  Shape shape;

  Grads operator()(const Tensor& dy) const { return {gather_backward(dy, shape, axis, index)}; }
  VariableGrads again(const Recorded& r) const {
    const Tensor none = zeros(shape, r.dy().dtype(), r.dy().device());
    return {scatter_add(Variable(none), axis, index.get(), r.dy())};
  }
};

}  // namespace

Variable gather(const Variable& x, int axis, const Tensor& index) {
  return tape().record("gather", {x}, gather(x.data(), axis, index),
                       Gather{SavedTensor(index), axis, x.shape()});
}

Variable scatter(const Variable& x, int axis, const Tensor& index, const Variable& source) {
  return tape().record("scatter", {x, source}, scatter(x.data(), axis, index, source.data()),
                       alike([axis, index = SavedTensor(index)](const auto& dy) {
                         return all_of(scatter(dy, axis, index.get(), 0),
                                       gather(dy, axis, index.get()));
                       }));
}

Variable scatter(const Variable& x, int axis, const Tensor& index, Scalar source) {
  return record_linear("scatter", x, scatter(x.data(), axis, index, source),
                       [axis, index = SavedTensor(index)](const auto& dy) {
                         return scatter(dy, axis, index.get(), 0);
                       });
}

Variable scatter_add(const Variable& x, int axis, const Tensor& index, const Variable& source) {
  return tape().record("scatter_add", {x, source},
                       scatter_add(x.data(), axis, index, source.data()),
                       alike([axis, index = SavedTensor(index)](const auto& dy) {
                         return all_of(dy, gather(dy, axis, index.get()));
                       }));
}

Variable index_add(const Variable& x, int axis, const Tensor& indices, const Variable& source) {
  return tape().record("index_add", {x, source}, index_add(x.data(), axis, indices, source.data()),
                       alike([axis, indices = SavedTensor(indices)](const auto& dy) {
                         return all_of(dy, index_select(dy, axis, indices.get()));
                       }));
}

Variable index_copy(const Variable& x, int axis, const Tensor& indices, const Variable& source) {
  return tape().record(
      "index_copy", {x, source}, index_copy(x.data(), axis, indices, source.data()),
      alike([axis, indices = SavedTensor(indices), shape = source.shape()](const auto& dy) {
        const Tensor none = zeros(shape, dy.dtype(), dy.device());
        return all_of(index_copy(dy, axis, indices.get(), none),
                      index_select(dy, axis, indices.get()));
      }));
}

Variable take(const Variable& x, const Tensor& indices) {
  const Variable flat = reshape(x, {x.data().numel()});
  const Tensor at = contiguous(indices).view({indices.numel()});
  return reshape(index_select(flat, 0, at), indices.shape());
}

Variable index(const Variable& x, const std::vector<Tensor>& indices) {
  return record_linear("index", x, index(x.data(), indices),
                       [shape = x.shape(), saved = SavedIndices(indices)](const auto& dy) {
                         const Tensor none = zeros(shape, dy.dtype(), dy.device());
                         return index_put(none, saved.get(), dy, true);
                       });
}

Variable index_put(const Variable& x, const std::vector<Tensor>& indices, const Variable& values,
                   bool accumulate) {
  return tape().record(
      "index_put", {x, values}, index_put(x.data(), indices, values.data(), accumulate),
      alike([saved = SavedIndices(indices), accumulate, shape = values.shape()](const auto& dy) {
        const std::vector<Tensor>& at = saved.get();
        const Tensor none = zeros(shape, dy.dtype(), dy.device());
        return all_of(accumulate ? dy : index_put(dy, at, none), sum_to(index(dy, at), shape));
      }));
}

}  // namespace bs
