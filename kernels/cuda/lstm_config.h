#pragma once
/** @file How an LSTM's steps are run on a GPU: pure functions of the problem. */
#include <bs/lib/dtype.h>

#include <cstdint>

namespace bs::cuda {

/** @brief Ways to run the steps of a sequence. */
enum class LstmAlgorithm {
  steps,      ///< a product and a kernel a step, launched one by one
  graph,      ///< the same, captured once for a shape and replayed, directions side by side
  persistent  ///< one kernel, the recurrent weight in registers
};

/** @brief What the choice depends on. */
struct LstmQuery {
  DType dtype = f32;
  int64_t steps = 0, batch = 0, cells = 0;
  bool projects = false;  ///< there is a projection
  bool variants = false;  ///< there is zoneout, or a sequence shorter than others
  bool sparse = false;    ///< the recurrent weight is block-sparse: its product allocates
  bool aligned = true;    ///< the recurrent weight begins at a whole word
  bool backward = false;
  bool capturing = false;  ///< the stream is being captured by the caller
  bool known = false;      ///< this shape has run before, so that its kernels are loaded
  int capability = 90;
  int multiprocessors = 132;
};

/** @brief Steps in the graphs of a shape, the longer first: a sequence is cut into them, and what
 *  is left is launched step by step. */
inline constexpr int lstm_chunks[] = {64, 8};

/** @brief Tiles of 8 sequences that the persistent kernel is made for, or 0. */
constexpr int lstm_persistent_tiles(int64_t batch) {
  return batch <= 16 ? 2 : batch <= 32 ? 4 : batch <= 64 ? 8 : 0;
}

/** @brief Directions that the persistent kernels run side by side, a CTA an SM. */
constexpr int64_t lstm_persistent_directions(int64_t cells, int multiprocessors) {
  const int64_t fit = multiprocessors / (cells / 8);
  return fit < 1 ? 1 : fit > 2 ? 2 : fit;
}

/** @brief Whether weights fit the registers of all CTAs, 8 cells each, one an SM; and a kernel was
 *  made for the shape. Backward runs in clusters of two, and has memory for 32 sequences. */
constexpr bool lstm_persistent_fits(const LstmQuery& q) {
  const bool cells =
      q.cells == 128 || q.cells == 256 || q.cells == 512 || q.cells == 768 || q.cells == 1024;
  const bool passes = q.backward ? q.batch <= 32 && q.capability >= 90
                                 : lstm_persistent_tiles(q.batch) > 0 && q.capability >= 80;
  return is_low_precision(q.dtype) && cells && passes && q.cells / 8 <= q.multiprocessors;
}

/** @brief The persistent kernels where they can; else a graph, which pays from a chunk on. Launches
 *  into a capture become part of the caller's graph, where another cannot be launched; loading
 *  kernels while capturing is not safe either. */
constexpr LstmAlgorithm lstm_algorithm(const LstmQuery& q) {
  const bool plain = !q.projects && !q.variants && !q.sparse && q.aligned;
  if (plain && q.steps > 1 && q.steps < int64_t{1} << 24 && lstm_persistent_fits(q))
    return LstmAlgorithm::persistent;
  const bool graph = q.steps >= lstm_chunks[1] && !q.sparse && !q.capturing && q.known;
  return graph ? LstmAlgorithm::graph : LstmAlgorithm::steps;
}

}  // namespace bs::cuda
