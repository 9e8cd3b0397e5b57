#pragma once
/** @file Timing of work on any device: repeated, with cold caches on a GPU, summed up as a median.
 */
#include <bs/lib/device.h>

#include <functional>
#include <vector>

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
  int runs = 20;
};

/** @brief The median and the quartiles of some runs, at least one. */
Timing summary(std::vector<double> seconds);

/** @brief Something to run and to time. */
using Work = std::function<void()>;

/** @brief Runs `work` twice unmeasured, then as often as the options ask. On a GPU each run is
 * timed by events on the current stream, after everything in the L2 cache was replaced; work must
 * not wait for the device. */
Timing measure(Device device, const Work& work, const MeasureOptions& options = {});

/** @brief Measures several works, each as above, taking turns: what clocks, temperature and
 * neighbours do to one of them they do to all. Compare only times that were measured so. */
std::vector<Timing> interleave(Device device, const std::vector<Work>& works,
                               const MeasureOptions& options = {});

/** @brief Seconds by the wall clock of one call, from an idle device to an idle device: for plans
 * and tables that are made once, which `measure` would warm up. */
double once(Device device, const Work& work);

/** @brief Seconds of the calling thread for one call, the device's work left out: the mean over
 * `calls`, which must fit the device's queue (a thousand launches do). */
double host_seconds(Device device, const Work& work, int calls = 200);

}  // namespace bs::bench
