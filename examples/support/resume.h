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

/** @brief Restores `state` from a checkpoint.
 *  @throws UsageError where the checkpoint was made with other data, or has more steps behind it
 *  than the run is to take; Error where its tensors do not fit. */
void restore(const nn::Checkpoint& checkpoint, const TrainingRun& run,
             const nn::TrainingState& state);

}  // namespace bs::example
