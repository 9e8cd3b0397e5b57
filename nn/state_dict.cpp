#include <bs/nn/state_dict.h>

#include <bs/lib/out_of_memory.h>
#include <bs/nn/staged_copies.h>

#include <new>

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

namespace {

/// `path` with `to` wherever `from` stands between dots.
std::string replaced(const std::string& path, const std::string& from, const std::string& to) {
  const std::string dotted = "." + path + ".", wanted = "." + from + ".";
  std::string result;
  size_t at = 0;
  for (size_t found; (found = dotted.find(wanted, at)) != std::string::npos;) {
    result += dotted.substr(at, found - at) + "." + to;
    at = found + wanted.size() - 1;  // the dot behind may be the next one's first
  }
  result += dotted.substr(at);
  return result.substr(1, result.size() - 2);
}

}  // namespace

StateDict renamed(const StateDict& state, const Renaming& rules, const std::string& prefix) {
  StateDict result;
  for (const auto& [name, tensor] : state) {
    std::string path = name;
    for (const auto& [from, to] : rules) {
      BS_CHECK(!from.empty() && !to.empty(), "renamed: a rule from '{}' to '{}'", from, to);
      path = replaced(path, from, to);
    }
    BS_CHECK(result.emplace(prefix + path, tensor).second, "renamed: two tensors become {}",
             prefix + path);
  }
  return result;
}

LoadReport load_state_dict(Module& module, const StateDict& state, const LoadOptions& options) try {
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
  StagedCopies copies;
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found != state.end()) copies.add(found->second, tensor);
  }
  copies.stage();
  copies.apply();
  return report;
} catch (const std::bad_alloc&) {
  out_of_own_memory("load_state_dict");
}

}  // namespace bs::nn
