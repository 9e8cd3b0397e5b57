#pragma once
/** @file How a run went: metrics.jsonl, one JSON object a line, and the same in memory. */
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace bs::example {

/** @brief Named numbers of one moment. */
struct Metrics {
  int64_t step = 0;  ///< from 1
  std::vector<std::pair<std::string, double>> values;

  /** @throws IoError where there is no such number. */
  double at(const std::string& name) const;
};

/** @brief Appends to metrics.jsonl, and remembers. Steps have a number named `loss`; what has none
 *  is an evaluation. */
class History {
 public:
  /** @brief Goes on with the file at `path` after `step`: what it has of later steps, from a run
   *  that was killed after its last checkpoint, is dropped. Step 0 starts a new file.
   *  @throws IoError when the file cannot be written, or a line of it cannot be read. */
  History(const std::string& path, int64_t step);
  void add(const Metrics& metrics);

  const std::vector<Metrics>& steps() const { return steps_; }
  const std::vector<Metrics>& evaluations() const { return evaluations_; }

 private:
  void read(int64_t last);
  void remember(Metrics metrics);
  void write(const Metrics& metrics);
  std::string path_;
  std::ofstream file_;
  std::vector<Metrics> steps_, evaluations_;
};

/** @brief Makes the folder and opens its metrics.jsonl. @throws IoError naming --out. */
History open_history(const std::string& folder, int64_t step);

}  // namespace bs::example
