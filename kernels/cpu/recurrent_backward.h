#pragma once
/** @file The steps of a recurrent layer with one state, backward. */
#include <bs/kernels/cpu/recurrent.h>

namespace bs::cpu::recurrent {

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
    run_sequence(team_for(f_, Cell::gates), reserve, [&](const TeamThread& thread) {
      for (int64_t n = f_.steps() - 1; n >= 0; --n) step(n, thread);
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

  void step(int64_t n, const TeamThread& thread) const {
    const int64_t t = f_.step(n);
    const Range cells = share<W>(cells_, thread);
    W* d = sums(n, t);
    W* dh = s_.dh.data<W>();
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t at = b * cells_ + cells.begin;
      if (s_.dy.defined()) {
        const T* dy = s_.dy.data<T>() + t * batch_ * cells_ + at;
        for (int64_t j = 0; j < cells.size(); ++j) dh[at + j] += convert<W>(dy[j]);
      }
      if (active_(t, b)) {
        for_each_piece_of(cells, [&](Range r) { row(t, b, r, d); });
      } else {
        clear(t, b, cells, d);
      }
    }
    thread.barrier();
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

}  // namespace bs::cpu::recurrent
