#include <bs/autograd/concat.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/concat.h>

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
  return tape().record("concat", parts, std::move(y),
                       [sizes, axis](const Tensor& dy) { return split(dy, sizes, axis); });
}

Variable stack(std::span<const Variable> parts, int axis) {
  Tensor y = stack(tensors(parts), axis);
  return tape().record("stack", parts, std::move(y), [axis](const Tensor& dy) {
    Grads grads;
    for (int64_t i = 0; i < dy.size(axis); ++i) grads.push_back(dy.select(axis, i));
    return grads;
  });
}

std::vector<Variable> split(const Variable& x, const std::vector<int64_t>& sizes, int axis) {
  return tape().record_many(
      "split", std::span(&x, 1), split(x.data(), sizes, axis),
      [sizes, axis](const Grads& dys) { return Grads{split_backward(dys, sizes, axis)}; });
}

std::vector<Variable> chunk(const Variable& x, int64_t count, int axis) {
  return split(x, chunk_sizes(x.shape(), count, axis), axis);
}

}  // namespace bs
