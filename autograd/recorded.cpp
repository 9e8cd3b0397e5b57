#include <bs/autograd/recorded.h>

namespace bs {

VariableGrads by_definition(
    const Recorded& r,
    const std::function<std::vector<Variable>(std::span<const Variable> inputs)>& function) {
  VariableGrads inputs, wanted, outputs, dys;
  for (size_t i = 0; i < r.inputs(); ++i) {
    inputs.push_back(r.input(i));
    if (r.wants(i)) wanted.push_back(inputs.back());
  }
  const uint64_t since = Tape::last_number();
  const std::vector<Variable> all = function(inputs);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!r.dys()[i].defined() || !all[i].requires_grad()) continue;
    outputs.push_back(all[i]);
    dys.push_back(r.dy(i));
  }
  const VariableGrads found = tape().recorded_gradients(outputs, wanted, dys, since);
  VariableGrads gradients(inputs.size());
  for (size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (r.wants(i)) gradients[i] = found[next++];
  return gradients;
}

VariableGrads by_definition(
    const Recorded& r, const std::function<Variable(std::span<const Variable> inputs)>& function) {
  return by_definition(
      r, [&](std::span<const Variable> inputs) { return std::vector<Variable>{function(inputs)}; });
}

}  // namespace bs
