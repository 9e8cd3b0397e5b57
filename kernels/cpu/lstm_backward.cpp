#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cpu/lstm.h>

namespace bs::cpu {

using namespace recurrent;

namespace {

/// Derivative of the sigmoid by its result.
template <bool hard, class W>
W gate_slope(W s) {
  if constexpr (hard) {
    return s > W(0) && s < W(1) ? W(0.125) : W(0);
  } else {
    return s * (W(1) - s);
  }
}

/// Derivative of tanh by its result.
template <bool hard, class W>
W squash_slope(W t) {
  if constexpr (hard) {
    return t > W(-1) && t < W(1) ? W(1) : W(0);
  } else {
    return W(1) - t * t;
  }
}

/// Gradients of the sums from those of the step's output (`dout`) and of c~ (`dc`), which becomes
/// that of the cells before.
template <bool hard, class W>
void cell_row(int64_t n, const W* const (&gates)[4], const W* before, const W* c, const W* dout,
              W* dc, W* const (&d)[4]) {
  const W *i = gates[0], *f = gates[1], *g = gates[2], *o = gates[3];
  W *di = d[0], *df = d[1], *dg = d[2], *dgo = d[3];
#pragma omp simd
  for (int64_t u = 0; u < n; ++u) {
    const W t = squash<hard>(c[u]);
    const W dcell = dc[u] + dout[u] * o[u] * squash_slope<hard>(t);
    const W input = i[u], forget = f[u], value = g[u];
    dgo[u] = dout[u] * t * gate_slope<hard>(o[u]);
    di[u] = dcell * value * gate_slope<hard>(input);
    df[u] = dcell * before[u] * gate_slope<hard>(forget);
    dg[u] = dcell * input * squash_slope<hard>(value);
    dc[u] = dcell * forget;
  }
}

template <class T>
class Backward {
 public:
  using W = Wide<T>;
  static constexpr bool converts = !std::is_same_v<T, W>;

  explicit Backward(const LSTMBackwardSteps& s)
      : s_(s),
        f_(s.forward),
        batch_(f_.batch()),
        cells_(f_.cells()),
        width_(f_.width()),
        projects_(f_.hr.defined()),
        active_(f_),
        keep_h_(keep_hidden<W>(f_.rule)),
        keep_c_(keep_cell<W>(f_.rule)) {
    if (!f_.layout) recurrent_ = {f_.hh.data<T>(), 4 * cells_, width_, width_, 1};
    if (projects_) projection_ = {f_.hr.data<T>(), width_, cells_, cells_, 1};
    // Gradients of sums are read by all threads while the next step's are written: two buffers.
    const int64_t gates = converts ? 2 * batch_ * 4 * cells_ : 0;
    buffer_ = Tensor::empty({gates + batch_ * (cells_ + width_)}, dtype_of<W>);
    sums_ = buffer_.data<W>();
    dout_ = sums_ + gates;
    dhidden_ = dout_ + batch_ * cells_;
  }

  void run() {
    const auto reserve = [&] { LeftRows<W>::reserve(batch_, std::max(width_, 4 * cells_)); };
    run_sequence(team_for(f_), reserve, [&](const TeamThread& thread) {
      visit_bool(f_.rule.hard, [&]<bool hard>(std::bool_constant<hard>) {
        for (int64_t n = f_.steps() - 1; n >= 0; --n) step<hard>(n, thread);
      });
    });
  }

 private:
  const T* gates_at(int64_t t) const { return f_.gates.data<T>() + t * batch_ * 4 * cells_; }
  T* dgates_at(int64_t t) const { return s_.dgates.data<T>() + t * batch_ * 4 * cells_; }
  const W* c_slot(int64_t slot) const { return f_.c.data<W>() + slot * batch_ * cells_; }
  W* sums(int64_t n, int64_t t) const {
    if constexpr (converts) {
      return sums_ + n % 2 * batch_ * 4 * cells_;
    } else {
      return dgates_at(t);
    }
  }

  template <bool hard>
  void step(int64_t n, const TeamThread& thread) const {
    const int64_t t = f_.step(n), m = active_.rows(t);
    const Range cells = share<W>(cells_, thread);
    const Range out = share<W>(width_, thread);
    W* dsums = sums(n, t);
    // Without a projection a thread's outputs are its cells, and dout_ is written in their place.
    W* const dhidden = projects_ ? dhidden_ : dout_;
    for (int64_t b = 0; b < batch_; ++b) arrive(t, b, out, dhidden);
    if (projects_) {
      thread.barrier();
      const LeftRows<W> rows(m, width_, dhidden, width_);
      projection_.multiply(rows, cells, W(0), dout_ + cells.begin, cells_);
    }
    for (int64_t b = 0; b < batch_; ++b) row<hard>(t, b, dsums, cells);
    thread.barrier();
    W* dh = s_.dh.data<W>();
    if (f_.layout) {
      add_sparse(t, dh);
    } else {
      const LeftRows<W> rows(m, 4 * cells_, dsums, 4 * cells_);
      recurrent_.multiply(rows, out, W(1), dh + out.begin, width_);
    }
  }

  void add_sparse(int64_t t, W* dh) const {
    const Tensor part = dds(s_.dgates.select(0, t), SparseTensor{f_.layout, f_.hh});
    const T* sums = part.data<T>();
    for (int64_t e = 0; e < batch_ * width_; ++e) dh[e] += convert<W>(sums[e]);
  }

  /// The gradient of h after the step, divided into that of h~ and what the state before keeps.
  void arrive(int64_t t, int64_t b, Range r, W* dhidden) const {
    const int64_t at = b * width_ + r.begin, n = r.size();
    W* dh = s_.dh.data<W>() + at;
    W* to_candidate = dhidden + at;
    if (s_.dy.defined()) {
      const T* dy = s_.dy.data<T>() + t * batch_ * width_ + at;
      for (int64_t j = 0; j < n; ++j) dh[j] += convert<W>(dy[j]);
    }
    if (!active_(t, b)) {
      std::fill_n(to_candidate, n, W(0));
    } else if (keep_h_.any()) {
      divide(keep_h_, t * batch_ * width_ + at, n, dh, to_candidate);
    } else {
      std::copy_n(dh, n, to_candidate);
      std::fill_n(dh, n, W(0));
    }
    if (projects_) narrow(n, to_candidate, s_.dhidden.data<T>() + t * batch_ * width_ + at);
  }

  /// candidate = (1 - k) kept; kept = k kept.
  static void divide(const Keep<W>& keep, int64_t first, int64_t n, W* kept, W* candidate) {
    constexpr int64_t most = 128;
    W k[most];
    for (int64_t at = 0; at < n; at += most) {
      const int64_t count = std::min(most, n - at);
      keep.factors(first + at, count, k);
      for (int64_t j = 0; j < count; ++j) {
        candidate[at + j] = (W(1) - k[j]) * kept[at + j];
        kept[at + j] *= k[j];
      }
    }
  }

  template <bool hard>
  void row(int64_t t, int64_t b, W* dsums, Range r) const {
    constexpr int64_t most = 256;
    const int64_t row = b * cells_, n = r.size();
    W* dc = s_.dc.data<W>() + row + r.begin;
    if (s_.dcells.defined()) {
      const W* arrives = s_.dcells.data<W>() + t * batch_ * cells_ + row + r.begin;
      for (int64_t j = 0; j < n; ++j) dc[j] += arrives[j];
    }
    if (!active_(t, b)) {
      for (int64_t g = 0; g < 4; ++g) {
        const int64_t at = 4 * row + g * cells_ + r.begin;
        std::fill_n(dsums + at, n, W(0));
        if constexpr (converts) std::fill_n(dgates_at(t) + at, n, T{});
      }
      return;
    }
    for (int64_t at = r.begin; at < r.end; at += most)
      piece<hard>(t, b, dsums, {at, std::min(r.end, at + most)});
  }

  /// Up to 256 cells of an active row.
  template <bool hard>
  void piece(int64_t t, int64_t b, W* dsums, Range r) const {
    constexpr int64_t most = 256;
    const int64_t row = b * cells_, n = r.size(), at = row + r.begin;
    W wide[converts ? 4 : 1][most];
    const W* gates[4];
    W* d[4];
    for (int64_t g = 0; g < 4; ++g) {
      const T* stored = gates_at(t) + 4 * row + g * cells_ + r.begin;
      if constexpr (converts) {
        widen(n, stored, wide[g]);
        gates[g] = wide[g];
      } else {
        gates[g] = stored;
      }
      d[g] = dsums + 4 * row + g * cells_ + r.begin;
    }
    const W* before = c_slot(f_.before(t)) + at;
    const W* c = c_slot(f_.after(t)) + at;
    W* dc = s_.dc.data<W>() + at;
    W candidate[most] = {}, kept[most] = {};
    if (keep_c_.any()) {  // c~ is not what was stored
      for (int64_t u = 0; u < n; ++u)
        candidate[u] = gates[1][u] * before[u] + gates[0][u] * gates[2][u];
      c = candidate;
      std::copy_n(dc, n, kept);
      divide(keep_c_, t * batch_ * cells_ + at, n, kept, dc);
    }
    cell_row<hard>(n, gates, before, c, dout_ + at, dc, d);
    if (keep_c_.any())
      for (int64_t u = 0; u < n; ++u) dc[u] += kept[u];
    if constexpr (converts)
      for (int64_t g = 0; g < 4; ++g)
        narrow(n, d[g], dgates_at(t) + 4 * row + g * cells_ + r.begin);
  }

  const LSTMBackwardSteps& s_;
  const LSTMSteps& f_;
  int64_t batch_, cells_, width_;
  bool projects_;
  Active active_;
  Keep<W> keep_h_, keep_c_;
  PackedWeight<W> recurrent_, projection_;
  Tensor buffer_;
  W *sums_ = nullptr, *dout_ = nullptr, *dhidden_ = nullptr;
};

}  // namespace

void lstm_backward(std::span<const LSTMBackwardSteps> directions, Stream) {
  for (const LSTMBackwardSteps& s : directions)
    visit_floating("lstm_backward", s.dgates.dtype(),
                   [&]<class T>(Type<T>) { Backward<T>(s).run(); });
}

}  // namespace bs::cpu
