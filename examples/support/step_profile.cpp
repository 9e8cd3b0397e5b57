#include <bs/examples/support/step_profile.h>

#include <bs/kernels/device_rates.h>

#include <algorithm>
#include <cstdio>

namespace bs::example {

void StepProfile::next() {
  if (path_.empty()) return;
  if (steps_ == warm_up) profiler_.emplace();
  if (steps_ == warm_up + recorded) finish();
  ++steps_;
}

void StepProfile::finish() {
  if (path_.empty()) return;
  if (profiler_) {
    profiler_->stop();
    profiler_->write_trace(path_);
    const int64_t steps = std::min(steps_ - warm_up, recorded);
    std::printf("\nprofile of %lld steps; %s is their trace, for ui.perfetto.dev\n%s\n",
                static_cast<long long>(steps), path_.c_str(),
                profiler_->table({.rates = device_rates}).c_str());
  } else {
    std::printf("no profile: it begins after %lld steps\n", static_cast<long long>(warm_up));
  }
  profiler_.reset();
  path_.clear();
}

}  // namespace bs::example
