#include <bs/autograd/concat.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/fill.h>

#include <algorithm>

namespace bs {

namespace {
std::vector<Tensor> tensors(std::span<const Variable> variables) {
  std::vector<Tensor> out;
  for (const Variable& v : variables) out.push_back(v.data());
  return out;
}
}  // namespace

Variable concat(std::span<const Variable> parts, int axis) {
  std::vector<int64_t> sizes;
  Tensor y = concat(tensors(parts), axis);
  for (const Variable& part : parts) sizes.push_back(part.size(axis));
  const auto cut = [sizes, axis](const auto& dy) { return split(dy, sizes, axis); };
  return tape().record("concat", parts, std::move(y),
                       Twice{cut, [cut](const Recorded& r) { return cut(r.dy()); }});
}

Variable stack(std::span<const Variable> parts, int axis) {
  Tensor y = stack(tensors(parts), axis);
  return tape().record("stack", parts, std::move(y),
                       Twice{[axis](const Tensor& dy) {
                               Grads grads;
                               for (int64_t i = 0; i < dy.size(axis); ++i)
                                 grads.push_back(dy.select(axis, i));
                               return grads;
                             },
                             [axis](const Recorded& r) {
                               VariableGrads grads;
                               for (size_t i = 0; i < r.inputs(); ++i)
                                 grads.push_back(select(r.dy(), axis, static_cast<int64_t>(i)));
                               return grads;
                             }});
}

std::vector<Variable> split(const Variable& x, const std::vector<int64_t>& sizes, int axis) {
  return tape().record_many(
      "split", std::span(&x, 1), split(x.data(), sizes, axis),
      Twice{[sizes, axis](const Grads& dys) { return Grads{split_backward(dys, sizes, axis)}; },
            [sizes, axis](const Recorded& r) {
              VariableGrads parts(r.dys().begin(), r.dys().end());
              const auto given = std::ranges::find_if(parts, &Variable::defined);
              for (size_t i = 0; i < parts.size(); ++i) {
                if (parts[i].defined()) continue;
                Shape shape = given->shape();
                shape[axis] = sizes[i];
                parts[i] = Variable(zeros(shape, given->dtype(), given->device()));
              }
              return VariableGrads{concat(parts, axis)};
            }});
}

std::vector<Variable> chunk(const Variable& x, int64_t count, int axis) {
  return split(x, chunk_sizes(x.shape(), count, axis), axis);
}

}  // namespace bs
