#pragma once
/** @file The steps of a recurrent layer with one state. A `Cell` has the number of `gates`, whether
 *  the last one `splits`, and the arithmetic of a row: `forward` and `backward`. */
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

/// One direction forward. The hidden state is also kept in the type of sums, as it was stored,
/// where that is another: before and after the step.
template <class T, class Cell>
class Forward {
 public:
  using W = Wide<T>;
  static constexpr bool converts = !std::is_same_v<T, W>;
  static constexpr size_t gates = Cell::gates;

  explicit Forward(const RecurrentSteps& s)
      : s_(s), batch_(s.batch()), cells_(s.cells()), active_(s) {
    const int64_t sums = batch_ * width(), states = converts ? 2 * batch_ * cells_ : 0;
    buffer_ = Tensor::empty({sums + width() + states}, dtype_of<W>);
    sums_ = buffer_.data<W>();
    bias_ = sums_ + sums;
    std::fill_n(bias_, width(), W(0));
    if (s.bias.defined())
      std::transform(s.bias.data<T>(), s.bias.data<T>() + width(), bias_,
                     [](T b) { return to<W>(b); });
    for (size_t g = 0; g < gates; ++g)
      recurrent_[g] = {s.hh.data<T>() + at_gate(g) * cells_, cells_, cells_, 1, cells_};
    if constexpr (converts) {
      hidden_[0] = bias_ + width();
      hidden_[1] = hidden_[0] + batch_ * cells_;
      widen(batch_ * cells_, h_slot(s.before(s.step(0))), hidden_[0]);
    }
  }

  void run() {
    const auto reserve = [&] { LeftRows<W>::reserve(batch_, cells_); };
    run_team(team_for(s_, Cell::gates), reserve, [&](int thread, int team) {
      for (int64_t n = 0; n < s_.steps(); ++n) step(n, thread, team);
    });
  }

 private:
  int64_t width() const { return static_cast<int64_t>(gates) * cells_; }
  int64_t at_gate(size_t g) const { return static_cast<int64_t>(g) * cells_; }
  T* h_slot(int64_t slot) const { return s_.h.data<T>() + slot * batch_ * cells_; }
  W* state(int64_t n, int64_t slot) const {
    if constexpr (converts) {
      return hidden_[n % 2];
    } else {
      return h_slot(slot);
    }
  }

  void step(int64_t n, int thread, int team) const {
    const int64_t t = s_.step(n);
    const Range cells = share<W>(cells_, thread, team);
    const W* before = state(n, s_.before(t));
    W* after = state(n + 1, s_.after(t));
    const LeftRows<W> rows(active_.rows(t), cells_, before, cells_);
    for (size_t g = 0; g < gates; ++g)
      recurrent_[g].multiply(rows, cells, W(0), sums_ + at_gate(g) + cells.begin, width());
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t at = b * cells_ + cells.begin;
      if (active_(t, b)) {
        for_each_piece_of(cells, [&](Range r) { row(t, b, r, before, after); });
      } else {
        std::copy_n(before + at, cells.size(), after + at);
      }
      if constexpr (converts) {
        T* stored = h_slot(s_.after(t)) + at;
        narrow(cells.size(), after + at, stored);
        widen(cells.size(), stored, after + at);
      }
    }
    meet(team);
  }

  void row(int64_t t, int64_t b, Range r, const W* before, W* after) const {
    const int64_t n = r.size(), at = b * cells_ + r.begin;
    T* stored = s_.gates.data<T>() + (t * batch_ + b) * width() + r.begin;
    std::array<WideRow<T>, gates> rows;
    std::array<W*, gates> z;
    std::array<const W*, gates> sums, bias;
    for (size_t g = 0; g < gates; ++g) {
      z[g] = rows[g].get(stored + at_gate(g), n);
      sums[g] = sums_ + b * width() + at_gate(g) + r.begin;
      bias[g] = bias_ + at_gate(g) + r.begin;
    }
    WideRow<T> candidate;
    T* kept = nullptr;
    W* q = nullptr;
    if constexpr (Cell::splits) {
      kept = s_.candidate.data<T>() + t * batch_ * cells_ + at;
      q = candidate.place(kept);
    }
    Cell::forward(n, z, sums, bias, before + at, q, after + at);
    for (size_t g = 0; g < gates; ++g) rows[g].put(stored + at_gate(g), n);
    if constexpr (Cell::splits) candidate.put(kept, n);
  }

  const RecurrentSteps& s_;
  int64_t batch_, cells_;
  Active active_;
  std::array<PackedWeight<W>, gates> recurrent_;
  Tensor buffer_;
  W *sums_ = nullptr, *bias_ = nullptr, *hidden_[2] = {};
};

/// One direction backward.
template <class T, class Cell>
class Backward {
 public:
  using W = Wide<T>;
  static constexpr bool converts = !std::is_same_v<T, W>;
  static constexpr size_t gates = Cell::gates;

  explicit Backward(const RecurrentBackwardSteps& s)
      : s_(s),
        f_(s.forward),
        batch_(f_.batch()),
        cells_(f_.cells()),
        active_(f_),
        recurrent_(f_.hh.data<T>(), width(), cells_, cells_, 1) {
    // Gradients of sums are read by all threads while the next step's are written: two buffers.
    if (!converts) return;
    buffer_ = Tensor::empty({2 * batch_ * width()}, dtype_of<W>);
    sums_ = buffer_.data<W>();
  }

  void run() {
    const auto reserve = [&] { LeftRows<W>::reserve(batch_, width()); };
    run_team(team_for(f_, Cell::gates), reserve, [&](int thread, int team) {
      for (int64_t n = f_.steps() - 1; n >= 0; --n) step(n, thread, team);
    });
  }

 private:
  int64_t width() const { return static_cast<int64_t>(gates) * cells_; }
  int64_t at_gate(size_t g) const { return static_cast<int64_t>(g) * cells_; }
  const T* h_slot(int64_t slot) const { return f_.h.data<T>() + slot * batch_ * cells_; }
  T* dgates_at(int64_t t) const { return s_.dgates.data<T>() + t * batch_ * width(); }
  T* drecurrent_at(int64_t t) const {
    return Cell::splits ? s_.drecurrent.data<T>() + t * batch_ * width() : dgates_at(t);
  }
  W* sums(int64_t n, int64_t t) const {
    if constexpr (converts) {
      return sums_ + n % 2 * batch_ * width();
    } else {
      return drecurrent_at(t);
    }
  }

  void step(int64_t n, int thread, int team) const {
    const int64_t t = f_.step(n);
    const Range cells = share<W>(cells_, thread, team);
    W* d = sums(n, t);
    W* dh = s_.dh.data<W>();
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t at = b * cells_ + cells.begin;
      if (s_.dy.defined()) {
        const T* dy = s_.dy.data<T>() + t * batch_ * cells_ + at;
        for (int64_t j = 0; j < cells.size(); ++j) dh[at + j] += to<W>(dy[j]);
      }
      if (active_(t, b)) {
        for_each_piece_of(cells, [&](Range r) { row(t, b, r, d); });
      } else {
        clear(t, b, cells, d);
      }
    }
    meet(team);
    const LeftRows<W> rows(active_.rows(t), width(), d, width());
    recurrent_.multiply(rows, cells, W(1), dh + cells.begin, cells_);
  }

  void clear(int64_t t, int64_t b, Range r, W* d) const {
    for (size_t g = 0; g < gates; ++g) {
      const int64_t at = b * width() + at_gate(g) + r.begin;
      std::fill_n(d + at, r.size(), W(0));
      std::fill_n(dgates_at(t) + at, r.size(), T{});
      if constexpr (converts && Cell::splits) std::fill_n(drecurrent_at(t) + at, r.size(), T{});
    }
  }

  void row(int64_t t, int64_t b, Range r, W* sums) const {
    const int64_t n = r.size(), at = b * cells_ + r.begin, first = b * width() + r.begin;
    const T* stored = f_.gates.data<T>() + t * batch_ * width() + first;
    std::array<WideRow<T>, gates> rows;
    std::array<const W*, gates> z;
    std::array<W*, gates> d;
    for (size_t g = 0; g < gates; ++g) {
      z[g] = rows[g].get(stored + at_gate(g), n);
      d[g] = sums + first + at_gate(g);
    }
    WideRow<T> before, after, candidate;
    W last[most_cells];
    const W* q = nullptr;
    if constexpr (Cell::splits)
      q = candidate.get(f_.candidate.data<T>() + t * batch_ * cells_ + at, n);
    Cell::backward(n, z, q, before.get(h_slot(f_.before(t)) + at, n),
                   after.get(h_slot(f_.after(t)) + at, n), s_.dh.data<W>() + at, d, last);
    for (size_t g = 0; g < gates; ++g) {
      const int64_t to_gate = first + at_gate(g);
      const W* of_input = Cell::splits && g + 1 == gates ? last : d[g];
      if constexpr (converts) {
        narrow(n, of_input, dgates_at(t) + to_gate);
        if constexpr (Cell::splits) narrow(n, d[g], drecurrent_at(t) + to_gate);
      } else if constexpr (Cell::splits) {
        std::copy_n(of_input, n, dgates_at(t) + to_gate);
      }
    }
  }

  const RecurrentBackwardSteps& s_;
  const RecurrentSteps& f_;
  int64_t batch_, cells_;
  Active active_;
  PackedWeight<W> recurrent_;
  Tensor buffer_;
  W* sums_ = nullptr;
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
