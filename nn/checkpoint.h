#pragma once
/** @file A training run in one file, to be resumed bit for bit. */
#include <bs/lib/random.h>
#include <bs/lib/safetensors.h>
#include <bs/nn/data/cursor.h>
#include <bs/nn/optim/ema.h>

#include <map>
#include <string>

namespace bs::nn {

/** @brief The parts of a training run; those that are null are left out. Owns nothing. */
struct TrainingState {
  Module* model = nullptr;
  optim::Optimizer* optimizer = nullptr;
  Generator* generator = nullptr;
  data::Cursor* loader = nullptr;
  int64_t step = 0;
  std::map<std::string, std::string> metadata =
      {};  ///< the caller's own, such as the model's options
  optim::Ema* average = nullptr;
};

/** @brief Writes a safetensors file, whole or not at all: parameters and buffers as "model.NAME",
 *  optimiser state as "optimizer.NAME", averages as "average.NAME", everything else as metadata.
 *  @throws IoError when the file cannot be written. Error when what it would hold cannot be read
 *  back: a negative step, two tensors of one path, or a name or text that is not UTF-8. */
void save_checkpoint(const std::string& path, const TrainingState& state);

/** @brief A checkpoint read from a file: look at it, make a model that fits, and restore. */
class Checkpoint {
 public:
  /** @throws IoError when the file cannot be read or is no checkpoint. */
  explicit Checkpoint(const std::string& path);

  /** @brief As the constructor was given it. */
  const std::string& path() const { return path_; }
  int64_t step() const { return step_; }
  /** @brief Of all tensors in the file. */
  int64_t tensor_bytes() const;
  /** @brief What the saver gave as metadata. */
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /** @brief Copies into every part given, in place; `state.step` and `state.metadata` are not
   * looked at. What the file has beyond the parts given is ignored.
   *  @throws Error listing what is missing, unknown, or of another shape or dtype, OutOfMemory, or
   *  what the loader's seek threw; nothing has changed then. */
  void restore(const TrainingState& state) const;

 private:
  struct Plan;
  void plan_tensors(Plan& plan, const std::string& prefix,
                    const std::vector<optim::NamedTensor>& targets) const;
  /** @brief An entry of our own metadata, or nothing with a difference noted. */
  uint64_t number(Plan& plan, const std::string& key) const;
  int64_t count(Plan& plan, const std::string& key, int64_t most) const;

  std::string path_;
  Safetensors content_;
  std::map<std::string, std::string> metadata_;
  int64_t step_ = 0;
};

}  // namespace bs::nn
