#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cpu/lstm.h>
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu {

using namespace recurrent;

namespace {

template <bool hard, class W>
W gate(W z) {
  if constexpr (hard) {
    const W s = W(0.5) + z * W(0.125);
    return s < W(0) ? W(0) : s > W(1) ? W(1) : s;
  } else {
    return math::sigmoid(z);
  }
}

/// The cells of a row: sums become gates in place, c and o t(c) come from them.
template <bool hard, class W>
void cell_row(int64_t n, W* i, W* f, W* g, W* o, const W* before, W* c, W* out) {
#pragma omp simd
  for (int64_t u = 0; u < n; ++u) {
    i[u] = gate<hard>(i[u]);
    f[u] = gate<hard>(f[u]);
    g[u] = squash<hard>(g[u]);
    o[u] = gate<hard>(o[u]);
    c[u] = f[u] * before[u] + i[u] * g[u];
    out[u] = o[u] * squash<hard>(c[u]);
  }
}

/// x = k before + (1 - k) x.
template <class W>
void blend(const Keep<W>& keep, int64_t first, int64_t n, const W* before, W* x) {
  constexpr int64_t most = 128;
  W k[most];
  for (int64_t at = 0; at < n; at += most) {
    const int64_t count = std::min(most, n - at);
    keep.factors(first + at, count, k);
    for (int64_t j = 0; j < count; ++j)
      x[at + j] = k[j] * before[at + j] + (W(1) - k[j]) * x[at + j];
  }
}

/// One direction. W is the type of sums. Where T is another, gates, h and outputs of a step are
/// computed in buffers of W. The hidden state has two, the state before and after.
template <class T>
class Forward {
 public:
  using W = Wide<T>;
  static constexpr bool converts = !std::is_same_v<T, W>;

  explicit Forward(const LSTMSteps& s)
      : s_(s),
        batch_(s.batch()),
        cells_(s.cells()),
        width_(s.width()),
        projects_(s.hr.defined()),
        active_(s),
        keep_h_(keep_hidden<W>(s.rule)),
        keep_c_(keep_cell<W>(s.rule)) {
    if (!s.layout) pack_recurrent();
    if (projects_) projection_ = {s.hr.data<T>(), cells_, width_, 1, cells_};
    if constexpr (converts) {
      buffer_ = Tensor::empty({batch_ * (5 * cells_ + 2 * width_)}, dtype_of<W>);
      sums_ = buffer_.data<W>();
      outputs_ = sums_ + 4 * batch_ * cells_;
      hidden_[0] = outputs_ + batch_ * cells_;
      hidden_[1] = hidden_[0] + batch_ * width_;
      widen(batch_ * width_, h_slot(s.before(s.step(0))), hidden_[0]);
    }
  }

  void run() {
    const auto reserve = [&] { LeftRows<W>::reserve(batch_, std::max(width_, cells_)); };
    run_sequence(team_for(s_), reserve, [&](const TeamThread& thread) {
      visit_bool(s_.rule.hard, [&]<bool hard>(std::bool_constant<hard>) {
        for (int64_t n = 0; n < s_.steps(); ++n) step<hard>(n, thread);
      });
    });
  }

 private:
  T* h_slot(int64_t slot) const { return s_.h.data<T>() + slot * batch_ * width_; }
  W* c_slot(int64_t slot) const { return s_.c.data<W>() + slot * batch_ * cells_; }
  T* gates_at(int64_t t) const { return s_.gates.data<T>() + t * batch_ * 4 * cells_; }
  T* outputs_at(int64_t t) const { return s_.outputs.data<T>() + t * batch_ * cells_; }

  /// The transposes of the four gates' weights [cells, width], each packed on its own.
  void pack_recurrent() {
    for (int64_t g = 0; g < 4; ++g)
      recurrent_[g] = {s_.hh.data<T>() + g * cells_ * width_, width_, cells_, 1, width_};
  }

  /// The step's buffers in the type of sums.
  struct Buffers {
    W *sums, *outputs, *after;
    const W* before;
  };
  Buffers buffers(int64_t n, int64_t t) const {
    if constexpr (converts) {
      W* after = hidden_[(n + 1) % 2];
      return {sums_, projects_ ? outputs_ : after, after, hidden_[n % 2]};
    } else {
      W* after = h_slot(s_.after(t));
      return {gates_at(t), projects_ ? outputs_at(t) : after, after, h_slot(s_.before(t))};
    }
  }

  template <bool hard>
  void step(int64_t n, const TeamThread& thread) const {
    const int64_t t = s_.step(n), m = active_.rows(t);
    const Buffers x = buffers(n, t);
    const Range cells = share<W>(cells_, thread);
    add_recurrent(t, m, x, cells);
    for (int64_t b = 0; b < batch_; ++b) row<hard>(t, b, x, cells);
    if (projects_) {
      thread.barrier();
      const Range out = share<W>(width_, thread);
      const LeftRows<W> outputs(m, cells_, x.outputs, cells_);
      projection_.multiply(outputs, out, W(0), x.after + out.begin, width_);
      for (int64_t b = 0; b < batch_; ++b) finish(t, b, x, out);
    }
    thread.barrier();
  }

  /// The gates' sums: the input's part is there.
  void add_recurrent(int64_t t, int64_t m, const Buffers& x, Range cells) const {
    if constexpr (converts) {
      for (int64_t b = 0; b < m; ++b)
        for (int64_t g = 0; g < 4; ++g) {
          const int64_t at = (4 * b + g) * cells_ + cells.begin;
          widen(cells.size(), gates_at(t) + at, x.sums + at);
        }
    }
    if (s_.layout) return add_sparse(t, m, x);
    const LeftRows<W> before(m, width_, x.before, width_);
    for (int64_t g = 0; g < 4; ++g)
      recurrent_[g].multiply(before, cells, W(1), x.sums + g * cells_ + cells.begin, 4 * cells_);
  }

  void add_sparse(int64_t t, int64_t m, const Buffers& x) const {
    const Tensor sums =
        dds(s_.h.select(0, s_.before(t)), SparseTensor{s_.layout, s_.hh}, {.b = true});
    const T* part = sums.data<T>();
    for (int64_t e = 0; e < m * 4 * cells_; ++e) x.sums[e] += convert<W>(part[e]);
  }

  /// Cells of one row, up to h, or up to what is projected.
  template <bool hard>
  void row(int64_t t, int64_t b, const Buffers& x, Range r) const {
    const int64_t at = b * cells_ + r.begin, n = r.size();
    const W* before = c_slot(s_.before(t)) + at;
    W* c = c_slot(s_.after(t)) + at;
    W* out = x.outputs + at;
    if (!active_(t, b)) {
      std::copy_n(before, n, c);
      if (projects_) {
        std::fill_n(out, n, W(0));
        std::fill_n(outputs_at(t) + at, n, T{});
        return;
      }
      std::copy_n(x.before + at, n, out);
    } else {
      W* i = x.sums + 4 * b * cells_ + r.begin;
      cell_row<hard>(n, i, i + cells_, i + 2 * cells_, i + 3 * cells_, before, c, out);
      const int64_t first = t * batch_ * cells_ + at;
      if (keep_c_.any()) blend(keep_c_, first, n, before, c);
      if (!projects_ && keep_h_.any()) blend(keep_h_, first, n, x.before + at, out);
      if constexpr (converts)
        for (int64_t g = 0; g < 4; ++g)
          narrow(n, i + g * cells_, gates_at(t) + (4 * b + g) * cells_ + r.begin);
    }
    if constexpr (converts)
      round(n, out, projects_ ? outputs_at(t) + at : h_slot(s_.after(t)) + at);
  }

  /// Outputs of one row after the projection.
  void finish(int64_t t, int64_t b, const Buffers& x, Range r) const {
    const int64_t at = b * width_ + r.begin, n = r.size();
    W* out = x.after + at;
    if (!active_(t, b)) {
      std::copy_n(x.before + at, n, out);
    } else if (keep_h_.any()) {
      blend(keep_h_, t * batch_ * width_ + at, n, x.before + at, out);
    }
    if constexpr (converts) round(n, out, h_slot(s_.after(t)) + at);
  }

  /// Stores a row, and goes on with what was stored.
  static void round(int64_t n, W* x, T* stored) {
    narrow(n, x, stored);
    widen(n, stored, x);
  }

  const LSTMSteps& s_;
  int64_t batch_, cells_, width_;
  bool projects_;
  Active active_;
  Keep<W> keep_h_, keep_c_;
  PackedWeight<W> recurrent_[4], projection_;
  Tensor buffer_;
  W *sums_ = nullptr, *outputs_ = nullptr, *hidden_[2] = {};
};

}  // namespace

void lstm_chunk(const LSTMSteps& layer, bool, int64_t& chunk, Stream) { chunk = layer.steps(); }

void lstm(std::span<const LSTMSteps> directions, Stream) {
  for (const LSTMSteps& s : directions)
    visit_floating("lstm", s.gates.dtype(), [&]<class T>(Type<T>) { Forward<T>(s).run(); });
}

}  // namespace bs::cpu
