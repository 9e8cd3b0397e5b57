#include <bs/autograd/saved_tensor.h>

namespace bs {

namespace {
thread_local const char* running = nullptr;
}

detail::RunningBackward::RunningBackward(const char* name)
    : previous_(std::exchange(running, name)) {}
detail::RunningBackward::~RunningBackward() { running = previous_; }
const char* detail::RunningBackward::name() { return running; }

void SavedTensor::check_unchanged() const {
  const uint64_t now = change_count();
  const char* by = tensor_.defined() ? changed_since(tensor_, moment_) : nullptr;
  BS_CHECK(!by,
           "backward: {} saved a tensor {} {} that {} has changed in place since; run backward "
           "before the change, or change a clone",
           running ? running : "an operation", tensor_.dtype(), tensor_.shape(), by);
  moment_ = now;  // what was looked through is not looked through again
}

SavedInputs::SavedInputs(std::span<const Variable> inputs) {
  for (const Variable& v : inputs)
    if (v.defined()) tensors_.emplace_back(v.data());
}

void SavedInputs::check() const {
  for (const SavedTensor& tensor : tensors_) static_cast<void>(tensor.get());
}

}  // namespace bs
