#pragma once
/** @file Named ranges on a profiler's time line. */

namespace bs {

/** @brief Marks the scope as a range for Nsight Systems (NVTX); costs nothing without CUDA. */
class TraceRange {
 public:
  explicit TraceRange(const char* name);
  ~TraceRange();  // NOLINT(performance-trivially-destructible): with CUDA it ends the range
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace bs
