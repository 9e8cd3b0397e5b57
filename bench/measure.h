#pragma once
/** @file Timing of work on any device: repeated, with cold caches on a GPU, summed up as a median.
 */
#include <bs/lib/device.h>

#include <functional>

namespace bs::bench {

/** @brief Seconds of one run, over the runs made. */
struct Timing {
  double median = 0;
  double low = 0, high = 0;  ///< the quartiles
  int runs = 0;
};

/** @brief How long to go on: until both are reached. */
struct MeasureOptions {
  double seconds = 0.3;
  int runs = 5;
};

/** @brief Runs `work` twice unmeasured, then as often as the options ask. On a GPU each run is
 * timed by events on the current stream, after everything in the L2 cache was replaced. */
Timing measure(Device device, const std::function<void()>& work,
               const MeasureOptions& options = {});

}  // namespace bs::bench
