#pragma once
/** @file The tensors of a module by name: to be looked at, saved, and put into another module. */
#include <bs/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace bs::nn {

/** @brief Parameters and buffers by their paths; what safetensors files hold. */
using StateDict = std::map<std::string, Tensor>;

/** @brief The tensors themselves, not copies, under `prefix` + their paths.
 *  @code save_safetensors(path, {nn::state_dict(model)}); @endcode */
StateDict state_dict(const Module& module, const std::string& prefix = "");

/** @brief Parts of paths, and what stands in their place. */
using Renaming = std::vector<std::pair<std::string, std::string>>;
/** @brief The same tensors under other names. In each path every rule in turn replaces its first
 * part, such as "fc.weight", wherever it stands between dots. Then `prefix`, if any, is put in
 * front.
 *  @throws Error when two would have one name, or a rule replaces nothing by something. */
StateDict renamed(const StateDict& state, const Renaming& rules, const std::string& prefix = "");

struct LoadOptions {
  bool strict = true;       ///< whether a name that is missing or unexpected is an error
  std::string prefix = {};  ///< names in the dictionary begin with this; others are not looked at
};

/** @brief Where names did not match. */
struct LoadReport {
  std::vector<std::string> missing;     ///< tensors of the module that the dictionary lacks
  std::vector<std::string> unexpected;  ///< names in the dictionary that the module lacks
};

/** @brief Copies tensors into the module's own, in place, converting dtype and device. Make the
 *  optimiser after this. The dictionary may hold the module's own tensors, under other names too.
 *  @throws Error listing every name that is missing or unexpected (if strict) and every shape that
 *  differs, OutOfMemory; nothing has changed then. */
LoadReport load_state_dict(Module& module, const StateDict& state, const LoadOptions& options = {});

}  // namespace bs::nn
