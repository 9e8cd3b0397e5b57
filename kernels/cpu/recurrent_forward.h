#pragma once
/** @file The steps of a recurrent layer with one state, forward. */
#include <bs/kernels/cpu/recurrent.h>

namespace bs::cpu::recurrent {

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
                     [](T b) { return convert<W>(b); });
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
    run_sequence(team_for(s_, Cell::gates), reserve, [&](const TeamThread& thread) {
      for (int64_t n = 0; n < s_.steps(); ++n) step(n, thread);
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

  void step(int64_t n, const TeamThread& thread) const {
    const int64_t t = s_.step(n);
    const Range cells = share<W>(cells_, thread);
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
    thread.barrier();
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

}  // namespace bs::cpu::recurrent
