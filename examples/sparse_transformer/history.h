#pragma once
/** @file How a run went: metrics.jsonl, one JSON object a line, and the same in memory. */
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace bs::example {

/** @brief Losses are natural: nats a byte. The file has them in bits too. */
double bits(double loss);

struct StepMetrics {
  int64_t step = 0;  ///< from 1
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double tokens_per_second = 0;
};
struct EvaluationMetrics {
  int64_t step = 0;
  double loss = 0;    ///< of the model on the held-out text
  double bigram = 0;  ///< of the baseline there
};

/** @brief Appends to metrics.jsonl, and remembers. */
class History {
 public:
  /** @brief Goes on with the file at `path` after `step`: what it has of later steps, from a run
   *  that was killed after its last checkpoint, is dropped. Step 0 starts a new file.
   *  @throws IoError when the file cannot be written, or a line of it cannot be read. */
  History(const std::string& path, int64_t step);
  void add(const StepMetrics& metrics);
  void add(const EvaluationMetrics& metrics);

  const std::vector<StepMetrics>& steps() const { return steps_; }
  const std::vector<EvaluationMetrics>& evaluations() const { return evaluations_; }

 private:
  void read(int64_t last);
  void write(const std::string& line);
  std::string path_;
  std::ofstream file_;
  std::vector<StepMetrics> steps_;
  std::vector<EvaluationMetrics> evaluations_;
};

}  // namespace bs::example
