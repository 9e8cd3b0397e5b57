#pragma once
/** @file How the states of a CTC lattice are divided among the threads of a block: pure functions
 *  of their number, the bytes of a word (4, of f64 8) and the shared memory of a block. */
#include <bs/lib/integers.h>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

/** @brief A block of the lattice. */
struct CtcPlan {
  static constexpr int most_each = 4, most_threads = 1024;

  int each = 1;      ///< states of a thread
  int ahead = 1;     ///< frames whose probabilities are on their way while one is added up
  int threads = 32;  ///< of the block

  /** @brief Frames ahead that hide the way to memory. */
  static constexpr int far_ahead(int each, int64_t word) {
    return each == 1 ? 8 : word == 4 ? 4 : 2;
  }
  /** @brief Bytes of shared memory: two rows of states, of two words each, and the probabilities.
   */
  constexpr int64_t shared_bytes(int64_t states, int64_t word) const {
    return 4 * states * word + word * ahead * each * threads;
  }
};

/** @brief The plan for so many states. Where memory is short, only one frame is on its way. */
constexpr CtcPlan ctc_plan(int64_t states, int64_t word, int64_t shared_bytes) {
  CtcPlan plan;
  plan.threads =
      static_cast<int>(std::min<int64_t>(ceil_div(states, 32) * 32, CtcPlan::most_threads));
  plan.each = states <= plan.threads ? 1 : CtcPlan::most_each;
  plan.ahead = CtcPlan::far_ahead(plan.each, word);
  if (plan.each > 1 && plan.shared_bytes(states, word) > shared_bytes) plan.ahead = 1;
  return plan;
}

/** @brief Labels of the longest utterance that a plan exists for. */
constexpr int64_t ctc_most_labels(int64_t word, int64_t shared_bytes) {
  const CtcPlan largest{CtcPlan::most_each, 1, CtcPlan::most_threads};
  const int64_t states = (shared_bytes - largest.shared_bytes(0, word)) / (4 * word);
  return (std::min<int64_t>(states, largest.each * largest.threads) - 1) / 2;
}

}  // namespace bs::cuda
