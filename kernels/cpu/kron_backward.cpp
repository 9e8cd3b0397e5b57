#include <bs/kernels/cpu/kron.h>
#include <bs/kernels/cpu/parallel.h>

#include <utility>

namespace bs::cpu {

namespace {

/// Tiles are summed in this many pieces at most, however many threads there are: the order of sums
/// stays the same.
constexpr int64_t most_pieces = 32;
constexpr double work_of_a_thread = 3e5;
constexpr int gradient_slot = 6, prefix_slot = 7;

/// The operands of one group.
template <class T>
struct Group {
  const T *x, *dy;
  T* dx;
  std::vector<PackedFactor<Wide<T>>> factors, transposed;
};

/// A tile's share of all gradients.
template <class T>
class BackwardTile {
  using W = Wide<T>;

 public:
  BackwardTile(const KronTiles& tiles, const Group<T>& group, const std::vector<bool>& wanted)
      : t_(tiles), g_(group), wanted_(wanted) {
    while (needed_ < wanted.size() && !wanted[needed_]) ++needed_;
  }

  /// Adds to `sums`, the gradients of the factors one behind the other.
  void run(int64_t tile, W* sums) const {
    const KronTiles::Place at = t_.place(tile);
    const size_t count = t_.axes.size();
    const int64_t size = t_.elements(at);
    // The tile before each factor, as far as a factor at or behind it wants its gradient.
    std::vector<const W*> before(count);
    W* const kept = scratch<W>(prefix_slot, size * static_cast<int64_t>(count));
    if (needed_ < count) before[count - 1] = read_tile(t_, at, t_.p, g_.x, kept);
    for (size_t i = count; i-- > needed_ + 1;) {
      W* const next = kept + size * static_cast<int64_t>(count - i);
      kron_step(g_.factors[i], t_.outer_of(at, i), t_.inner_of(at, i), before[i], next);
      before[i - 1] = next;
    }
    W* buffers[2] = {scratch<W>(gradient_slot, 2 * size), nullptr};
    buffers[1] = buffers[0] + size;
    const W* g = read_tile(t_, at, t_.q, g_.dy, buffers[1]);
    W* const in_place = g_.dx ? place_of_tile<W>(t_, at, t_.p, g_.dx) : nullptr;
    for (size_t i = 0; i < count; ++i) {
      const int64_t outer = t_.outer_of(at, i), inner = t_.inner_of(at, i);
      const auto [p, q] = t_.axes[i];
      if (wanted_[i]) kron_contract(outer, int64_t{p}, int64_t{q}, inner, before[i], g, sums);
      sums += p * q;
      if (!g_.dx && !wanted_behind(i)) return;
      W* const to = i + 1 == count && in_place ? in_place : buffers[0];
      kron_step(g_.transposed[i], outer, inner, g, to);
      g = to;
      std::swap(buffers[0], buffers[1]);
    }
    if (!in_place) write_tile(t_, at, t_.p, g, g_.dx);
  }

 private:
  bool wanted_behind(size_t i) const {
    for (size_t k = i + 1; k < wanted_.size(); ++k)
      if (wanted_[k]) return true;
    return false;
  }

  const KronTiles& t_;
  const Group<T>& g_;
  const std::vector<bool>& wanted_;
  size_t needed_ = 0;  ///< the first axis with a gradient
};

template <class T>
Group<T> group_of(const KronTiles& t, int64_t group, const Tensor& x,
                  const std::vector<Tensor>& factors, const Tensor& dy, const Tensor& dx) {
  const int64_t in = group * t.outer * t.p * t.inner, out = group * t.outer * t.q * t.inner;
  Group<T> g{x.defined() ? x.data<T>() + in : nullptr,
             dy.data<T>() + out,
             dx.defined() ? dx.data<T>() + in : nullptr,
             {},
             {}};
  for (const Tensor& f : factors) {
    const T* const w = f.data<T>() + group * f.strides()[0];
    const int64_t row = f.strides()[1], col = f.strides()[2];
    g.factors.push_back(packed_factor<Wide<T>>(w, f.size(1), f.size(2), row, col));
    g.transposed.push_back(packed_factor<Wide<T>>(w, f.size(2), f.size(1), col, row));
  }
  return g;
}

}  // namespace

void kron_pass_backward(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& dy,
                        const Tensor& dx, const std::vector<Tensor>& dfactors, Stream) {
  const KronTiles t(dy.size(1), dy.size(3), factors);
  std::vector<bool> wanted;
  int64_t sums = 0;
  for (size_t i = 0; i < factors.size(); ++i) {
    wanted.push_back(dfactors[i].defined());
    sums += t.axes[i].p * t.axes[i].q;
  }
  const int64_t pieces = std::min(t.count(), most_pieces);
  visit_floating("kron_matmul_backward", dy.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    std::vector<W> partial(static_cast<size_t>(pieces * sums));
    for (int64_t group = 0; group < dy.size(0); ++group) {
      const Group<T> g = group_of<T>(t, group, x, factors, dy, dx);
      const BackwardTile<T> backward(t, g, wanted);
      std::ranges::fill(partial, W(0));
      parallel_each(pieces, team_size(3 * t.work(), work_of_a_thread), [&](int64_t piece) {
        const int64_t end = t.count() * (piece + 1) / pieces;
        for (int64_t tile = t.count() * piece / pieces; tile < end; ++tile)
          backward.run(tile, partial.data() + piece * sums);
      });
      for (int64_t piece = 1; piece < pieces; ++piece)
        for (int64_t i = 0; i < sums; ++i)
          partial[static_cast<size_t>(i)] += partial[static_cast<size_t>(piece * sums + i)];
      const W* from = partial.data();
      for (size_t i = 0; i < factors.size(); ++i) {
        const int64_t size = t.axes[i].p * t.axes[i].q;
        if (wanted[i]) narrow(size, from, dfactors[i].data<T>() + group * size);
        from += size;
      }
    }
  });
}

}  // namespace bs::cpu
