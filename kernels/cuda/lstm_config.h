#pragma once
/** @file How an LSTM's steps are run on a GPU: pure functions of the problem. */
#include <cstdint>

namespace bs::cuda {

/** @brief Ways to run the steps of a sequence. */
enum class LstmAlgorithm {
  steps,  ///< a product and a kernel a step, launched one by one
  graph   ///< the same, captured once for a shape and replayed, directions side by side
};

/** @brief What the choice depends on. */
struct LstmQuery {
  int64_t steps = 0;
  bool sparse = false;     ///< the recurrent weight is block-sparse: its product allocates
  bool capturing = false;  ///< the stream is being captured by the caller
  bool known = false;      ///< this shape has run before, so that its kernels are loaded
};

/** @brief Steps in the graphs of a shape, the longer first: a sequence is cut into them, and what
 *  is left is launched step by step. */
inline constexpr int lstm_chunks[] = {64, 8};

/** @brief A graph pays from a chunk on. Launches into a capture become part of the caller's graph,
 *  where another cannot be launched; loading kernels while capturing is not safe either. */
constexpr LstmAlgorithm lstm_algorithm(const LstmQuery& q) {
  const bool graph = q.steps >= lstm_chunks[1] && !q.sparse && !q.capturing && q.known;
  return graph ? LstmAlgorithm::graph : LstmAlgorithm::steps;
}

}  // namespace bs::cuda
