#include <bs/nn/checkpoint.h>

#include <bs/lib/out_of_memory.h>
#include <bs/lib/overlap.h>
#include <bs/nn/staged_copies.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <new>
#include <optional>

namespace bs::nn {

namespace {

constexpr const char* format_key = "bs.format";
constexpr const char* format_name = "checkpoint 1";
constexpr std::string_view user_prefix = "user.";

std::vector<optim::NamedTensor> tensors_of(const Module& model) {
  std::vector<optim::NamedTensor> tensors;
  for (const auto& list : {model.named_parameters(), model.named_buffers()})
    for (const NamedVariable& v : list) tensors.push_back({v.name, v.variable.data()});
  return tensors;
}

/// A number of ours. Counts are also kept in signed numbers, so they end where those do.
template <class T>
std::optional<T> parse(const std::string& text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

void save_checkpoint(const std::string& path, const TrainingState& state) try {
  BS_CHECK(state.step >= 0, "save_checkpoint: step {} is negative", state.step);
  Safetensors content;
  const auto put = [&](const std::string& prefix, const std::vector<optim::NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors)
      BS_CHECK(content.tensors.emplace(prefix + name, tensor).second,
               "save_checkpoint: two tensors have the path {}{}", prefix, name);
  };
  auto& metadata = content.metadata;
  for (const auto& [key, value] : state.metadata) metadata[std::string(user_prefix) + key] = value;
  metadata[format_key] = format_name;
  metadata["bs.step"] = std::to_string(state.step);
  if (state.model) put("model.", tensors_of(*state.model));
  if (state.optimizer) {
    put("optimizer.", state.optimizer->state());
    metadata["bs.optimizer_steps"] = std::to_string(state.optimizer->steps());
  }
  if (state.average) put("average.", state.average->state());
  if (state.generator) {
    const RandomState random = state.generator->state();
    metadata["bs.generator_seed"] = std::to_string(random.seed);
    metadata["bs.generator_offset"] = std::to_string(random.offset);
  }
  if (state.loader) metadata["bs.loader_cursor"] = std::to_string(state.loader->cursor());
  save_safetensors(path, content);
} catch (const std::bad_alloc&) {
  out_of_own_memory("save_checkpoint", path);
}

Checkpoint::Checkpoint(const std::string& path) try
    : path_(path), content_(load_safetensors(path)) {
  const auto& all = content_.metadata;
  const auto found = all.find(format_key);
  if (found == all.end() || found->second != format_name)
    BS_THROW(IoError, "checkpoint: {} is no checkpoint that this version reads", path);
  const auto step = all.find("bs.step");
  const auto number = step == all.end() ? std::nullopt : parse<int64_t>(step->second);
  if (!number || *number < 0) BS_THROW(IoError, "checkpoint: {} tells no step", path);
  step_ = *number;
  for (const auto& [key, value] : all)
    if (key.starts_with(user_prefix)) metadata_[key.substr(user_prefix.size())] = value;
} catch (const std::bad_alloc&) {
  out_of_own_memory("checkpoint", path);
}

int64_t Checkpoint::tensor_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : content_.tensors) bytes += static_cast<int64_t>(tensor.bytes());
  return bytes;
}

/// What a restore will do, and what speaks against it.
struct Checkpoint::Plan {
  StagedCopies copies;
  std::vector<std::string> differences;

  void check(const std::string& path) const {
    constexpr size_t most = 20;
    if (differences.empty()) return;
    std::string text;
    for (size_t i = 0; i < std::min(most, differences.size()); ++i) text += "\n  " + differences[i];
    if (differences.size() > most)
      text += format("\n  and {} more differences", differences.size() - most);
    BS_THROW(Error, "checkpoint: {} does not fit:{}", path, text);
  }
};

void Checkpoint::plan_tensors(Plan& plan, const std::string& prefix,
                              const std::vector<optim::NamedTensor>& targets) const {
  std::map<std::string, Tensor> unknown;
  for (const auto& [name, tensor] : content_.tensors)
    if (name.starts_with(prefix)) unknown.emplace(name, tensor);
  for (const auto& [name, to] : targets) {
    const auto found = unknown.find(prefix + name);
    if (found == unknown.end()) {
      plan.differences.push_back(prefix + name + " is missing in the file");
      continue;
    }
    const Tensor& from = found->second;
    if (from.shape() != to.shape() || from.dtype() != to.dtype())
      plan.differences.push_back(format("{}{} is {} {} in the file, {} {} here", prefix, name,
                                        from.dtype(), from.shape(), to.dtype(), to.shape()));
    else if (repeats_elements(to))
      plan.differences.push_back(prefix + name + " repeats elements here and cannot be written");
    else
      plan.copies.add(from, to);
    unknown.erase(found);
  }
  for (const auto& [name, tensor] : unknown)
    plan.differences.push_back(name + " of the file is unknown here");
}

uint64_t Checkpoint::number(Plan& plan, const std::string& key) const {
  const auto found = content_.metadata.find(key);
  if (found == content_.metadata.end()) {
    plan.differences.push_back(key + " is missing in the file");
    return 0;
  }
  const auto value = parse<uint64_t>(found->second);
  if (!value)
    plan.differences.push_back(format("{} is no number in the file: {}", key, found->second));
  return value.value_or(0);
}

int64_t Checkpoint::count(Plan& plan, const std::string& key, int64_t most) const {
  const uint64_t value = number(plan, key);
  if (value <= static_cast<uint64_t>(most)) return static_cast<int64_t>(value);
  plan.differences.push_back(format("{} is {} in the file, more than {}", key, value, most));
  return 0;
}

void Checkpoint::restore(const TrainingState& state) const try {
  Plan plan;
  if (state.model) plan_tensors(plan, "model.", tensors_of(*state.model));
  int64_t optimizer_steps = 0, cursor = 0;
  RandomState random;
  if (state.optimizer) {
    plan_tensors(plan, "optimizer.", state.optimizer->state());
    optimizer_steps = count(plan, "bs.optimizer_steps", std::numeric_limits<int64_t>::max());
  }
  if (state.average) plan_tensors(plan, "average.", state.average->state());
  if (state.generator)
    random = {number(plan, "bs.generator_seed"), number(plan, "bs.generator_offset")};
  if (state.loader) cursor = count(plan, "bs.loader_cursor", data::Cursor::most);
  plan.check(path_);

  // What can fail comes first: memory, then a loader of the caller's own.
  plan.copies.stage();
  if (state.loader) state.loader->seek(cursor);
  plan.copies.apply();
  if (state.optimizer) state.optimizer->set_steps(optimizer_steps);
  if (state.generator) state.generator->set_state(random);
} catch (const std::bad_alloc&) {
  out_of_own_memory("checkpoint", path_);
}

}  // namespace bs::nn
