#pragma once
/** @file How an LSTM's steps are run on a GPU: pure functions of the problem. */
#include <bs/lib/dtype.h>
#include <bs/lib/integers.h>

#include <cstdint>

namespace bs::cuda {

/** @brief Shared memory of a CTA on the GPUs that have most; kernels that want more are not made.
 */
inline constexpr int64_t most_shared_bytes = 227 * 1024;

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
  int capability = 90;     ///< that the kernels at hand were compiled for
  int multiprocessors = 132;
  int64_t shared_bytes = most_shared_bytes;  ///< of shared memory that a CTA may have
  bool cooperative = true;  ///< all CTAs of a launch run at once if it asks for that
  int pairs = 66;           ///< clusters of two CTAs, one a multiprocessor, that run at once
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

/** @brief Shared memory of a CTA that has `blocks` blocks of the cells, for groups of `rows`
 *  sequences: sums, and the weights that registers don't hold. */
constexpr int64_t lstm_shared_bytes(bool backward, int64_t cells, int blocks, int rows) {
  constexpr int64_t warps = 8, fragment = 256 * 16;  // of all threads
  const int64_t slices = cells / 128;
  if (backward) {
    const int64_t kept = blocks == 1 || slices < 4 ? slices : slices <= 12 ? 2 : 4;
    const int64_t turn = 2 * warps * rows * 8 * blocks * 4;
    return 2 * turn + (slices - kept) * 2 * blocks * fragment + 16;
  }
  const int64_t quads = ceil_div(cells / 32, warps);
  const int64_t kept = blocks == 1 ? quads : slices <= 12 ? 1 : 2;
  return warps * rows * 8 * 16 + (quads - kept) * 4 * blocks * fragment;
}

/** @brief Multiprocessors that the CTAs of a launch may count on. Backward runs in clusters of two,
 *  which need two that are neighbours. */
constexpr int64_t lstm_multiprocessors(const LstmQuery& q) {
  const int64_t paired = 2 * int64_t{q.pairs};
  return q.backward && paired < q.multiprocessors ? paired : q.multiprocessors;
}

/** @brief The division with two blocks of cells a CTA (`wide`) or one, if the GPU has room for it.
 *  Groups have 16 sequences where that gives more of them an SM of their own, or where shared
 * memory holds no more. */
constexpr LstmDivision lstm_division_of(const LstmQuery& q, bool wide) {
  LstmDivision d;
  const int blocks = wide ? 2 : 1;
  const int64_t sms = lstm_multiprocessors(q), ctas = q.cells / (8 * blocks);
  const auto has_room = [&](int rows) {
    return lstm_shared_bytes(q.backward, q.cells, blocks, rows) <= q.shared_bytes;
  };
  if (ctas > sms || !has_room(16)) return d;
  d.ctas = static_cast<int>(ctas);
  d.blocks = blocks;
  const int fit = static_cast<int>(sms / ctas);
  d.directions = q.directions > 1 && fit > 1 ? 2 : 1;
  const int together = fit / d.directions;
  d.rows = !has_room(32) || ceil_div(q.batch, 16) <= together ? 16 : 32;
  const int64_t groups = ceil_div(q.batch, d.rows);
  d.splits = static_cast<int>(groups < together ? groups : together);
  d.groups = static_cast<int>(ceil_div(groups, d.splits));
  return d;
}

/** @brief Two blocks of cells a CTA where one would leave some cells without an SM, or where that
 *  lets another direction or group run beside; the other way where only that has room. */
constexpr LstmDivision lstm_division(const LstmQuery& q) {
  const int64_t cells = q.cells, sms = lstm_multiprocessors(q);
  LstmSize size;
  for (const LstmSize& made : lstm_sizes)
    if (made.cells == cells) size = made;
  if (size.cells == 0) return {};
  const bool alone = size.two && cells / 8 * 2 > sms;
  const bool several = q.directions > 1 || q.batch > 32;
  const bool wide = !size.one || (alone && (cells / 8 > sms || (several && cells / 16 * 2 <= sms)));
  const LstmDivision first = lstm_division_of(q, wide);
  if (first.blocks > 0 || !(wide ? size.one : size.two)) return first;
  return lstm_division_of(q, !wide);
}

/** @brief Whether there is such a division, all CTAs of which run at once, with no more sequences
 *  after each other than a product of all takes longer for. */
constexpr bool lstm_persistent_fits(const LstmQuery& q) {
  const LstmDivision d = lstm_division(q);
  const bool passes = q.cooperative && q.capability >= (q.backward ? 90 : 80);
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
