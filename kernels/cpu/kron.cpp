#include <bs/kernels/cpu/activate.h>
#include <bs/kernels/cpu/kron.h>
#include <bs/kernels/cpu/parallel.h>

#include <utility>

namespace bs::cpu {

namespace {

constexpr int64_t tile_budget = int64_t{1} << 16;  ///< elements: two tiles stay in a core's cache
constexpr int64_t least_columns = 64;     ///< of a tile that has not the whole inner extent
constexpr double work_of_a_thread = 3e5;  ///< multiply-adds that pay for waking it
constexpr int ping_slot = 6, pong_slot = 7;

int64_t widest_of(const std::vector<KronAxis>& axes, size_t first, size_t last) {
  int64_t before = 1, after = 1, widest = 1;
  for (size_t i = first; i < last; ++i) before *= axes[i].p;
  widest = before;
  for (size_t i = last; i-- > first;) {
    before /= axes[i].p;
    after *= axes[i].q;
    widest = std::max(widest, before * after);
  }
  return widest;
}

/// All steps of a tile; returns where the results are.
template <class W>
const W* run_steps(const KronTiles& t, const KronTiles::Place& at,
                   const std::vector<PackedFactor<W>>& factors, const W* x, W* last) {
  W* buffers[2] = {scratch<W>(ping_slot, t.elements(at)), scratch<W>(pong_slot, t.elements(at))};
  if (x == buffers[0]) std::swap(buffers[0], buffers[1]);
  for (size_t i = factors.size(); i-- > 0;) {
    W* const y = i == 0 && last ? last : buffers[0];
    kron_step(factors[i], t.outer_of(at, i), t.inner_of(at, i), x, y);
    x = y;
    std::swap(buffers[0], buffers[1]);
  }
  return x;
}

/// Bias and activation of a tile of results [rows, q, columns].
template <class W, class T>
void finish(const KronTiles& t, const KronTiles::Place& at, const T* bias, Activation activation,
            T* before, W* y) {
  for (int64_t r = 0; bias && r < at.rows; ++r)
    for (int64_t q = 0; q < t.q; ++q)
      for (int64_t c = 0; c < at.columns; ++c)
        y[(r * t.q + q) * at.columns + c] += convert<W>(bias[q * t.inner + at.column + c]);
  if (before) write_tile(t, at, t.q, y, before);
  activate(activation, y, at.rows * t.q * at.columns);
}

}  // namespace

KronTiles::KronTiles(int64_t outer_, int64_t inner_, const std::vector<Tensor>& factors)
    : outer(outer_), inner(inner_) {
  for (const Tensor& f : factors) {
    axes.push_back({f.size(1), f.size(2)});
    p *= f.size(1);
    q *= f.size(2);
  }
  widest = widest_of(axes, 0, axes.size());
  chunk = inner * widest <= tile_budget ? inner : std::min(inner, least_columns);
  // Small rows go together, yet so that threads find enough tiles.
  constexpr int64_t small_tile = tile_budget / 8;
  rows = chunk < inner ? 1 : std::clamp<int64_t>(small_tile / (widest * inner), 1, outer);
  row_tiles = ceil_div(outer, rows);
  chunks = ceil_div(inner, chunk);
}

double KronTiles::work() const {
  double all = 0;
  const Place whole{0, outer, 0, inner};
  for (size_t i = 0; i < axes.size(); ++i)
    all += static_cast<double>(outer_of(whole, i) * inner_of(whole, i)) *
           static_cast<double>(axes[i].p * axes[i].q);
  return all;
}

void kron_plan(const std::vector<KronAxis>& axes, DType, bool, KronPlan& plan, Stream) {
  int64_t inner = 1;
  for (size_t last = axes.size(); last > 0;) {
    size_t first = last - 1;
    while (first > 0 &&
           widest_of(axes, first - 1, last) * (inner == 1 ? 1 : std::min(inner, least_columns)) <=
               tile_budget)
      --first;
    plan.passes.push_back(static_cast<int>(last - first));
    for (size_t i = first; i < last; ++i) inner *= axes[i].q;
    last = first;
  }
}

void kron_pass(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias,
               Activation activation, const Tensor& before, const Tensor& y, Stream) {
  const KronTiles t(x.size(1), x.size(3), factors);
  visit_floating("kron_matmul", y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* const b = bias.defined() ? bias.data<T>() : nullptr;
    for (int64_t group = 0; group < x.size(0); ++group) {
      std::vector<PackedFactor<W>> packed;
      packed.reserve(factors.size());
      for (const Tensor& f : factors)
        packed.push_back(packed_factor<W>(f.data<T>() + group * f.strides()[0], f.size(1),
                                          f.size(2), f.strides()[1], f.strides()[2]));
      const T* const from = x.data<T>() + group * t.outer * t.p * t.inner;
      const int64_t offset = group * t.outer * t.q * t.inner;
      T* const to = y.data<T>() + offset;
      T* const kept = before.defined() ? before.data<T>() + offset : nullptr;
      parallel_each(t.count(), team_size(t.work(), work_of_a_thread), [&](int64_t tile) {
        const KronTiles::Place at = t.place(tile);
        W* const in_place = place_of_tile<W>(t, at, t.q, to);
        const W* const values = read_tile(t, at, t.p, from, scratch<W>(ping_slot, t.elements(at)));
        W* const result = const_cast<W*>(run_steps(t, at, packed, values, in_place));
        if (b || kept || activation != Activation::none) finish(t, at, b, activation, kept, result);
        if (!in_place) write_tile(t, at, t.q, result, to);
      });
    }
  });
}

}  // namespace bs::cpu
