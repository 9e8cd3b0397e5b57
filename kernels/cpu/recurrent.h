#pragma once
/** @file What both passes of a recurrent layer with one state share. A `Cell` has the number of
 *  `gates`, whether the last `splits`, and a row's arithmetic: `forward` and `backward`. */
#include <bs/kernels/cpu/lstm.h>
#include <bs/kernels/recurrent.h>

#include <array>

namespace bs::cpu::recurrent {

/// Cells that are worked on at a time, so that what 16 bits are widened to stays near.
inline constexpr int64_t most_cells = 256;

/// Threads for a sequence: a step must outweigh the barrier at its end.
inline int team_for(const RecurrentSteps& s, int64_t gates) {
  constexpr double worth_a_thread = 1 << 17;  // multiply-adds
  return team_size(static_cast<double>(gates * s.batch() * s.cells() * s.cells()), worth_a_thread);
}

/// Calls f({from, to}) for pieces of a range.
template <class F>
void for_each_piece_of(Range r, F&& f) {
  for (int64_t at = r.begin; at < r.end; at += most_cells)
    f(Range{at, std::min(r.end, at + most_cells)});
}

/// A row of T as the type of sums: itself, or a copy that `put` brings back.
template <class T>
struct WideRow {
  using W = Wide<T>;
  static constexpr bool converts = !std::is_same_v<T, W>;
  W copy[converts ? most_cells : 1];

  W* place(T* row) {
    if constexpr (converts) {
      return copy;
    } else {
      return row;
    }
  }
  W* get(const T* row, int64_t n) {
    W* wide = place(const_cast<T*>(row));
    if constexpr (converts) widen(n, row, wide);
    return wide;
  }
  void put(T* row, int64_t n) const {
    if constexpr (converts) narrow(n, copy, row);
  }
};

/// Runs all directions, one after the other.
template <template <class, class> class Pass, class Cell, class Steps>
void run_directions(const char* op, std::span<const Steps> directions) {
  for (const Steps& s : directions) {
    const Tensor* gates = nullptr;
    if constexpr (requires { s.dgates; }) {
      gates = &s.dgates;
    } else {
      gates = &s.gates;
    }
    visit_floating(op, gates->dtype(), [&]<class T>(Type<T>) { Pass<T, Cell>(s).run(); });
  }
}

}  // namespace bs::cpu::recurrent
