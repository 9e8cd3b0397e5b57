#pragma once
/** @file How an LSTM's steps are run on a GPU: pure functions of the problem. */
#include <bs/lib/dtype.h>
#include <bs/lib/integers.h>

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
  int directions = 1;
  bool projects = false;  ///< there is a projection
  bool zoneout = false;
  bool sparse = false;  ///< the recurrent weight is block-sparse: its product allocates
  bool aligned = true;  ///< the recurrent weight begins at a whole word
  bool backward = false;
  bool capturing = false;  ///< the stream is being captured by the caller
  bool known = false;      ///< this shape has run before, so that its kernels are loaded
  int capability = 90;
  int multiprocessors = 132;
};

/** @brief Steps in the graphs of a shape, the longer first: a sequence is cut into them, and what
 *  is left is launched step by step. */
inline constexpr int lstm_chunks[] = {64, 8};

/** @brief Cells that there are persistent kernels for, and whether a CTA may have one block of 8 of
 *  them, or two. Divisions are of these, and launches of what divisions say. */
struct LstmSize {
  int cells = 0;
  bool one = true, two = false;
};
inline constexpr LstmSize lstm_sizes[] = {{128},
                                          {256},
                                          {512},
                                          {768, true, true},
                                          {1024, true, true},
                                          {1536, false, true},
                                          {2048, false, true}};

/** @brief How the persistent kernels divide a problem among CTAs, one an SM. */
struct LstmDivision {
  int blocks = 0;      ///< of 8 cells a CTA has; 0: no kernel was made for the shape
  int ctas = 0;        ///< that have all cells
  int directions = 1;  ///< that run side by side
  int rows = 32;       ///< sequences of a group, which a CTA works on together
  int splits = 1;      ///< parts of the groups that run side by side
  int groups = 1;      ///< of a part, which take turns
};

/** @brief Two blocks of cells a CTA where one would leave some cells without an SM, or where that
 *  lets another direction or group run beside. Groups of 16 sequences where that gives more of them
 *  an SM of their own, or where shared memory holds no more. */
constexpr LstmDivision lstm_division(const LstmQuery& q) {
  LstmDivision d;
  const int64_t cells = q.cells, sms = q.multiprocessors;
  LstmSize size;
  for (const LstmSize& made : lstm_sizes)
    if (made.cells == cells) size = made;
  if (size.cells == 0) return d;
  const bool alone = size.two && cells / 8 * 2 > sms;
  const bool several = q.directions > 1 || q.batch > 32;
  const bool wide = !size.one || (alone && (cells / 8 > sms || (several && cells / 16 * 2 <= sms)));
  d.ctas = static_cast<int>(cells / (wide ? 16 : 8));
  if (d.ctas > sms) return d;
  d.blocks = wide ? 2 : 1;
  const int fit = static_cast<int>(sms / d.ctas);
  d.directions = q.directions > 1 && fit > 1 ? 2 : 1;
  const int together = fit / d.directions;
  const bool tight = q.backward && cells == 2048;
  d.rows = tight || ceil_div(q.batch, 16) <= together ? 16 : 32;
  const int64_t groups = ceil_div(q.batch, d.rows);
  d.splits = static_cast<int>(groups < together ? groups : together);
  d.groups = static_cast<int>(ceil_div(groups, d.splits));
  return d;
}

/** @brief Whether there is such a division, with no more sequences after each other than a product
 *  of all takes longer for. Backward runs in clusters of two. */
constexpr bool lstm_persistent_fits(const LstmQuery& q) {
  const LstmDivision d = lstm_division(q);
  const bool passes = q.capability >= (q.backward || q.cells > 1024 ? 90 : 80);
  const int most = q.cells > 1024 ? 32 : 64;
  return is_low_precision(q.dtype) && d.blocks > 0 && passes && d.rows * d.groups <= most;
}

/** @brief The persistent kernels where they can; else a graph, which pays from a chunk on. Launches
 *  into a capture become part of the caller's graph, where another cannot be launched; loading
 *  kernels while capturing is not safe either. */
constexpr LstmAlgorithm lstm_algorithm(const LstmQuery& q) {
  const bool plain = !q.projects && !q.zoneout && !q.sparse && q.aligned;
  if (plain && q.steps > 1 && q.steps < int64_t{1} << 24 && lstm_persistent_fits(q))
    return LstmAlgorithm::persistent;
  const bool graph = q.steps >= lstm_chunks[1] && !q.sparse && !q.capturing && q.known;
  return graph ? LstmAlgorithm::graph : LstmAlgorithm::steps;
}

/** @brief Steps of the pieces in which a layer runs beside the one below, or all of them. Two
 * layers side by side take less time than after each other where both fit the persistent kernels at
 * once and a batch is one group of sequences; starting a piece takes some steps' time. */
constexpr int64_t lstm_wavefront(LstmQuery q) {
  q.directions = 2;
  const bool beside = lstm_algorithm(q) == LstmAlgorithm::persistent && q.batch <= 32 &&
                      lstm_division(q).directions == 2;
  const int64_t chunk = q.steps / 8 > 64 ? q.steps / 8 : 64;
  return beside && q.steps >= 3 * chunk ? chunk : q.steps;
}

}  // namespace bs::cuda
