#pragma once
/** @file What the forward and the backward of the LSTM share: how a team of threads divides the
 *  cells, products with a weight packed once a sequence, and the factors of zoneout. */
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/distribution.h>
#include <bs/kernels/lstm.h>
#include <bs/lib/failure.h>
#include <bs/lib/philox.h>

#include <algorithm>

namespace bs::cpu::recurrent {

/// tanh, or its hard form.
template <bool hard, class W>
W squash(W z) {
  if constexpr (hard) {
    return z < W(-1) ? W(-1) : z > W(1) ? W(1) : z;
  } else {
    return math::tanh(z);
  }
}

/// A run of columns.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// The columns of `width` that a thread of a team has: whole panels, so that the arithmetic of a
/// column does not depend on the team.
template <class W>
Range share(int64_t width, const TeamThread& thread) {
  constexpr int64_t unit = Tile<W>::cols;
  const int64_t panels = ceil_div(width, unit), number = thread.number(), team = thread.size();
  return {std::min(width, panels * number / team * unit),
          std::min(width, panels * (number + 1) / team * unit)};
}

/// Threads for a sequence: a step must outweigh the barrier at its end.
inline int team_for(const LSTMSteps& s) {
  constexpr double worth_a_thread = 1 << 17;  // multiply-adds
  if (s.layout) return 1;                     // the block-sparse product has threads of its own
  const double work = 4.0 * static_cast<double>(s.batch() * s.cells() * s.width());
  return team_size(work, worth_a_thread);
}

/// Calls body(thread) on each thread of a team, and reserve() on each before. There are barriers in
/// `body`, so it must not throw: `reserve` gets what memory it needs.
template <class Reserve, class Body>
void run_sequence(int team, Reserve&& reserve, Body&& body) {
  Failure failure;
  run_team(team, [&](const TeamThread& thread) {
    failure.guard(reserve);
    thread.barrier();
    if (!failure.any()) body(thread);
  });
  failure.rethrow();
}

/// Rows of a left operand [m, k]: packed by the calling thread where there are enough of them,
/// which costs little beside a product, and reads faster.
template <class W>
struct LeftRows {
  const W* data;
  PanelLayout layout;
  int64_t m, step;  ///< step: elements to the next of the depth

  static constexpr int slot = 4;

  LeftRows(int64_t rows, int64_t k, const W* a, int64_t row)
      : data(a), layout(direct_a<W>(row, 1)), m(rows), step(1) {
    if (rows < Tile<W>::rows) return;
    W* packed = scratch<W>(slot, packed_a_size<W>(rows, k));
    pack_a<W>(rows, k, a, row, int64_t{1}, packed);
    data = packed;
    layout = packed_a<W>(k);
    step = layout.step;
  }
  /// Memory for up to so many rows of up to that depth, in the calling thread.
  static void reserve(int64_t rows, int64_t k) { scratch<W>(slot, packed_a_size<W>(rows, k)); }
};

/// A right operand [k, n] packed in panels of columns, multiplied column range by column range.
template <class W>
class PackedWeight {
 public:
  PackedWeight() = default;
  /// Element (l, j) is src[l * step + j * lane].
  template <class T>
  PackedWeight(const T* src, int64_t depth, int64_t n, int64_t step, int64_t lane)
      : packed_(Tensor::empty({packed_b_size<W>(depth, n)}, dtype_of<W>)),
        data_(packed_.data<W>()),
        k_(depth) {
    parallel_for(ceil_div(n, Tile<W>::cols), 4, [&](int64_t first, int64_t last) {
      pack_panels<Side::right>(first, last, n, depth, src, lane, step, packed_.data<W>());
    });
  }

  /// c (m x columns) = beta c + a (m x k) times the columns of `range`, which starts a panel; `c`
  /// is where the first of them goes.
  void multiply(const LeftRows<W>& a, Range range, W beta, W* c, int64_t row_c) const {
    constexpr int64_t unit = Tile<W>::cols, depth = Tile<W>::depth;
    if (a.m == 0 || range.size() == 0) return;
    for (int64_t l = 0; l < k_; l += depth) {
      const PanelPair<W> pair{a.data + l * a.step, data_ + range.begin * k_ + l * unit};
      multiply_panels<W, W>(a.m, range.size(), std::min(depth, k_ - l), {&pair, 1}, a.layout,
                            PanelLayout{unit * k_, unit, 1, true}, W(1), l == 0 ? beta : W(1), c,
                            row_c, 1);
    }
  }

 private:
  Tensor packed_;
  const W* data_ = nullptr;
  int64_t k_ = 0;
};

/// Which rows of a batch are in their sequence at a step.
class Active {
 public:
  template <class Steps>
  explicit Active(const Steps& s)
      : lengths_(s.lengths.defined() ? s.lengths.template data<int64_t>() : nullptr),
        batch_(s.batch()) {}
  bool operator()(int64_t t, int64_t b) const { return !lengths_ || t < lengths_[b]; }
  bool all() const { return lengths_ == nullptr; }
  /// Rows up to the last active one: few late in a batch that is sorted by length.
  int64_t rows(int64_t t) const {
    int64_t m = batch_;
    while (m > 0 && !(*this)(t, m - 1)) --m;
    return m;
  }

 private:
  const int64_t* lengths_;
  int64_t batch_;
};

/// Zoneout's factors k of one of the two states.
template <class W>
struct Keep {
  double p;
  bool expected;
  RandomState state;
  int64_t which;  ///< 0 the hidden state, 1 the cells: the two draw different blocks

  bool any() const { return p > 0; }
  /// The factors of elements [first, first + n) of [T, B, width].
  void factors(int64_t first, int64_t n, W* k) const {
    if (expected) {
      std::fill_n(k, n, static_cast<W>(p));
      return;
    }
    const uint64_t limit = threshold(p);
    for (int64_t e = first; e < first + n; ++e) {
      const auto block = static_cast<uint64_t>(e / 4 * 2 + which);
      k[e - first] = philox(state.seed, block, state.offset).word[e % 4] < limit ? W(1) : W(0);
    }
  }
};

template <class W>
Keep<W> keep_hidden(const LSTMRule& r) {
  return {r.zoneout_hidden, r.expected, r.state, 0};
}
template <class W>
Keep<W> keep_cell(const LSTMRule& r) {
  return {r.zoneout_cell, r.expected, r.state, 1};
}

/// Calls f(std::bool_constant) with `value`.
template <class F>
void visit_bool(bool value, F&& f) {
  if (value) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

}  // namespace bs::cpu::recurrent
