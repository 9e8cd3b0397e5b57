#include <bs/nn/state_dict.h>

#include <bs/kernels/copy.h>

namespace bs::nn {

StateDict state_dict(const Module& module, const std::string& prefix) {
  StateDict state;
  for (const auto& list : {module.named_parameters(), module.named_buffers()})
    for (const NamedVariable& named : list) {
      const bool added = state.emplace(prefix + named.name, named.variable.data()).second;
      BS_CHECK(added, "state_dict: a parameter and a buffer have the path {}", named.name);
    }
  return state;
}

LoadReport load_state_dict(Module& module, const StateDict& state, const LoadOptions& options) {
  LoadReport report;
  std::string problems;
  StateDict own = state_dict(module, options.prefix);
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) {
      report.missing.push_back(name);
      if (options.strict) problems += format("\n  missing: {}", name);
    } else if (found->second.shape() != tensor.shape()) {
      problems +=
          format("\n  {}: shape {}, expected {}", name, found->second.shape(), tensor.shape());
    }
  }
  for (const auto& [name, tensor] : state) {
    if (own.count(name) > 0 || name.compare(0, options.prefix.size(), options.prefix) != 0)
      continue;
    report.unexpected.push_back(name);
    if (options.strict) problems += format("\n  unexpected: {}", name);
  }
  BS_CHECK(problems.empty(), "load_state_dict:{}", problems);
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found != state.end()) copy(to(found->second, tensor.device()), tensor);
  }
  return report;
}

}  // namespace bs::nn
