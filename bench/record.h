#pragma once
/** @file What a benchmark measured, as a table on the screen and as JSON: each figure with the work
 *  it did, the machine it ran on, and that machine's ceilings in the same run. */
#include <bs/bench/arguments.h>
#include <bs/lib/json.h>

#include <string>

namespace bs::bench {

/** @brief The rates nothing of this dtype exceeds on this device, as measured: a dense product of
 *  4096^3 (1024^3 on a CPU), and a copy far beyond the caches, bytes read and written. */
struct Ceilings {
  double flops_per_second = 0;
  double bytes_per_second = 0;
};
Ceilings measure_ceilings(Device device, DType dtype);

/** @brief One figure. `cell` says what problem it is, in members that peers' records repeat, for
 *  example {{"n", 4096}, {"block", 32}}; `what` which operation on it, "forward"; `by` who did it.
 */
struct Figure {
  Json::Object cell = {};
  std::string what = {};
  std::string by = "bs";
  Timing time = {};
  double flops = 0;  ///< useful work, 0 where nobody counts it
  double bytes = 0;  ///< the fewest that must move: each input read once, each output written
  double rate = 1;   ///< of the ceiling for FLOPs, in times that of the record's dtype
  Json::Object further = {};  ///< more facts for the JSON, such as {"plan_seconds", 1e-3}
};

/** @brief Prints figures as they come, and keeps them for the file of `--json`. */
class Record {
 public:
  /** @brief Measures the ceilings, and prints machine and ceilings. */
  Record(std::string benchmark, const Settings& settings);
  const Ceilings& ceilings() const { return ceilings_; }
  /** @brief The floor: seconds below which no device with these ceilings does the work. Under a
   *  TF32Guard that of TF32. */
  double floor(double flops, double bytes) const;
  void add(Figure figure);
  /** @brief Writes the file that `--json` named, if any. Call it once, at the end. */
  void write() const;

 private:
  std::string benchmark_;
  const Settings& settings_;
  Json::Object machine_;
  Ceilings ceilings_;
  double tf32_rate_ = 0;  // FLOP/s; 0 where f32 has no such products
  std::string heading_;   // the members of the last cell, printed when they change
  Json::Array figures_;
};

/** @brief Element-wise error bound of a sum of `terms` products of dtype `dtype` whose absolute
 *  values add up to `size`, rounded once at the end to a result of about `value`: sqrt(terms) u
 * size (Higham and Mary 2019) with u of the accumulator, f64 for f64 and f32 otherwise. */
double sum_error(DType dtype, double terms, double size, double value);

/** @brief Writes text to a file, whole or not at all. */
void write_text(const std::string& path, const std::string& text);

}  // namespace bs::bench
