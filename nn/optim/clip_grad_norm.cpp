#include <bs/nn/optim/clip_grad_norm.h>

#include <vector>

namespace bs::optim {

namespace {
std::vector<Tensor> gradients_of(std::span<const Variable> parameters) {
  std::vector<Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const Variable& p : parameters) gradients.push_back(p.grad());
  return gradients;
}
}  // namespace

Tensor grad_norm(std::span<const Variable> parameters) {
  return bs::grad_norm(gradients_of(parameters));
}

Tensor clip_grad_norm(std::span<const Variable> parameters, double max_norm) {
  BS_CHECK(max_norm > 0, "clip_grad_norm: a largest norm of {}", max_norm);
  const std::vector<Tensor> gradients = gradients_of(parameters);
  Tensor norm = bs::grad_norm(gradients);
  clip_gradients(gradients, {.norm = norm, .max_norm = max_norm});
  return norm;
}

}  // namespace bs::optim
