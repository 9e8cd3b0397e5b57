#include <bs/examples/support/resume.h>

#include <bs/lib/memory.h>

namespace bs::example {
namespace {

constexpr int64_t times = 16, spare = int64_t{64} << 20;

void set_limits(const RunOptions& options, int64_t more) {
  for (const Device device : {Device::cpu(), options.device})
    set_memory_limit(device, more == 0 ? 0 : memory_statistics(device).in_use + more);
}

}  // namespace

ModelBound::ModelBound(const RunOptions& options) : options_(options) {
  set_limits(options, times * options.resume->tensor_bytes() + spare);
}

ModelBound::~ModelBound() { set_limits(options_, 0); }

void ModelBound::refuse(const OutOfMemory& error) const {
  BS_THROW(Error,
           "checkpoint: {} has {} bytes of tensors, and asks for a model larger than {} times that "
           "and {} bytes:{} ({})",
           options_.resume->path(), options_.resume->tensor_bytes(), times, spare, options_.shape,
           error.what());
}

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
