#pragma once
/** @file How a run goes on from a checkpoint. */
#include <bs/examples/support/run_options.h>

#include <cstdint>
#include <string>

namespace bs::example {

/** @brief What a run trains on, and how far. */
struct TrainingRun {
  std::string data;         ///< as the command line names it
  std::string key;          ///< of the checkpoint's metadata that holds the fingerprint
  std::string fingerprint;  ///< of the data
  int64_t steps = 0;        ///< to take in all
};

/** @brief While it lives, tensors may take so much beside what there is: sixteen times the bytes of
 *  the tensors in options.resume, and 64 MiB. A model that was pruned to a tenth of its blocks is
 *  made whole first. */
class ModelBound {
 public:
  explicit ModelBound(const RunOptions& options);
  ~ModelBound();
  ModelBound(const ModelBound&) = delete;
  ModelBound& operator=(const ModelBound&) = delete;
  /** @brief Says which options ask for more. @throws Error */
  [[noreturn]] void refuse(const OutOfMemory& error) const;

 private:
  const RunOptions& options_;
};

/** @brief make(), the model of a run. Options that a checkpoint keeps may be anybody's: they cannot
 *  ask for more than a ModelBound.
 *  @throws Error naming the checkpoint and the options where they do */
template <class Make>
auto make_model(const RunOptions& options, const Make& make) -> decltype(make()) {
  if (!options.resume) return make();
  const ModelBound bound(options);
  try {
    return make();
  } catch (const OutOfMemory& error) {
    bound.refuse(error);
  }
}

/** @brief Restores `state` from a checkpoint.
 *  @throws UsageError where the checkpoint was made with other data, or has more steps behind it
 *  than the run is to take; Error where its tensors do not fit. */
void restore(const nn::Checkpoint& checkpoint, const TrainingRun& run,
             const nn::TrainingState& state);

}  // namespace bs::example
