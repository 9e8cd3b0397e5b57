#pragma once
/** @file What --profile records of a training run. */
#include <bs/lib/profiler.h>

#include <cstdint>
#include <optional>
#include <string>

namespace bs::example {

/** @brief Records ten steps of a run, after two that make tables and threads; then writes their
 *  trace and prints where time went. */
class StepProfile {
 public:
  /** @param[in] path file of the trace; empty: nothing is recorded */
  explicit StepProfile(std::string path) : path_(std::move(path)) {}

  /** @brief A step is about to begin. */
  void next();
  /** @brief The run ends: writes what there is of a run that was shorter. */
  void finish();

 private:
  static constexpr int64_t warm_up = 2, recorded = 10;
  std::string path_;
  int64_t steps_ = 0;  ///< that have begun
  std::optional<Profiler> profiler_;
};

}  // namespace bs::example
