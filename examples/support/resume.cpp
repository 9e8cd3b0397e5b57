#include <bs/examples/support/resume.h>

namespace bs::example {

void restore(const nn::Checkpoint& checkpoint, const TrainingRun& run,
             const nn::TrainingState& state) {
  const auto fingerprint = checkpoint.metadata().find(run.key);
  if (fingerprint == checkpoint.metadata().end() || fingerprint->second != run.fingerprint)
    BS_THROW(UsageError, "--data {} is not what the checkpoint was trained on ({} here)", run.data,
             run.fingerprint);
  if (checkpoint.step() > run.steps)
    BS_THROW(UsageError, "--steps {}: the checkpoint has {} steps behind it", run.steps,
             checkpoint.step());
  checkpoint.restore(state);
}

}  // namespace bs::example
