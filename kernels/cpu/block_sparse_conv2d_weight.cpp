#include <bs/kernels/cpu/block_sparse_conv2d.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <array>
#include <type_traits>

namespace bs::cpu {

namespace {

constexpr int rows_slot = 4, columns_slot = 5, sums_slot = 6;
constexpr int64_t most_side = 256;    ///< channels of the result that a task packs
constexpr int64_t few_tasks = 32;     ///< fewer are cut along the pixels, too
constexpr int64_t least_part = 1024;  ///< pixels of such a part

/// A block of the gradient.
struct Wanted {
  int32_t tap, in;  ///< place of the filter, and block of the input's channels
  int32_t row;      ///< block of the result's channels
  int32_t number;
};

/// Blocks [first, end) of the list: those of some neighbouring rows, by (tap, in).
struct WeightTask {
  int64_t row, rows;  ///< block rows
  size_t first, end;
};

/// Which blocks are summed together, and how the pixels are cut. Threads do not count in it, so
/// that sums are the same for any number of them.
struct SparseWeightCut {
  std::vector<Wanted> blocks;
  std::vector<WeightTask> tasks;
  int64_t part, parts;  ///< pixels summed apart from others

  SparseWeightCut(const Conv2dProblem& d, const Layout& layout) {
    const LayoutView l = layout.view(Device::cpu());
    const auto ins = static_cast<int32_t>(d.c / l.block);
    const int64_t rows = std::max<int64_t>(1, most_side / l.block);
    const auto enough = static_cast<size_t>(rows * rows);
    for (int64_t row = 0; row < l.rows; row += rows) {
      const int64_t end = std::min<int64_t>(l.rows, row + rows);
      size_t first = blocks.size();
      const auto close = [&] {
        if (blocks.size() > first) tasks.push_back({row, end - row, first, blocks.size()});
        first = blocks.size();
      };
      for (int32_t column = 0; column < l.cols; ++column) {
        for (int32_t at = l.col_offsets[column]; at < l.col_offsets[column + 1]; ++at) {
          const int32_t r = l.transposed_row[at];
          if (r >= row && r < end)
            blocks.push_back({column / ins, column % ins, r, l.transposed[at]});
        }
        if (blocks.size() - first >= enough) close();
      }
      close();
    }
    const int64_t pixels = d.n * d.p * d.q, count = static_cast<int64_t>(tasks.size());
    const int64_t wanted = std::min(ceil_div(few_tasks, std::max<int64_t>(count, 1)),
                                    std::max<int64_t>(pixels / least_part, 1));
    part = ceil_div(pixels, wanted);
    parts = ceil_div(pixels, part);
  }
};

template <class W, class T>
class SparseWeight {
 public:
  SparseWeight(const ConvGather& g, const SparseWeightCut& cut, int64_t block, const Tensor& x,
               const Tensor& dy)
      : g_(g), cut_(cut), block_(block), x_(x.data<T>()), from_(x), dy_(dy.data<T>()) {}

  /// The blocks of a task summed over the pixels of a part.
  void sum(const WeightTask& task, int64_t part, W* sums) const {
    const ConvPhase& phase = g_.phases[0];
    const int64_t begin = part * cut_.part;
    const int64_t end = std::min(g_.n * phase.pixels(), begin + cut_.part);
    const int64_t step = even_step(end - begin, Tile<W>::depth, 8), pitch = g_.out;
    const int64_t rows = task.rows * block_;
    W* a = scratch<W>(rows_slot, packed_a_size<W>(rows, step));
    W* b = scratch<W>(columns_slot, packed_b_size<W>(step, block_));
    Places places{};
    for (int64_t l = begin; l < end; l += step) {
      const int64_t depth = std::min(step, end - l);
      pack_a(rows, depth, dy_ + l * pitch + task.row * block_, 1, pitch, a);
      const Wanted* last = nullptr;
      for (size_t i = task.first; i < task.end; ++i) {
        const Wanted& w = cut_.blocks[i];
        if (!last || last->tap != w.tap)
          find(phase.taps[static_cast<size_t>(w.tap)], l, depth, places);
        if (!last || last->tap != w.tap || last->in != w.in) pack(places, w.in, depth, b);
        last = &w;
        const PanelPair<W> pair{a + packed_a_at<W>(depth, (w.row - task.row) * block_, 0), b};
        multiply_panels(block_, block_, depth, std::span<const PanelPair<W>>(&pair, 1),
                        packed_a<W>(depth), packed_b<W>(depth), W(1), W(l == begin ? 0 : 1),
                        sums + w.number * block_ * block_, block_, int64_t{1});
      }
    }
  }

 private:
  using Places = std::array<int64_t, static_cast<size_t>(Tile<W>::depth)>;

  /// Where a tap of pixels [first, first + depth) reads x; -1: outside.
  void find(const ConvTap& tap, int64_t first, int64_t depth, Places& places) const {
    for (int64_t l = 0; l < depth; ++l) {
      const auto [n, p, q] = g_.phases[0].pixel(first + l);
      const int64_t h = p * g_.read.h + tap.h, w = q * g_.read.w + tap.w;
      const bool inside = h >= 0 && h < g_.h && w >= 0 && w < g_.w;
      places[static_cast<size_t>(l)] = inside ? pixel_offset({n, h, w}, from_) : -1;
    }
  }

  /// A block of channels at those places as a right operand, pixels being its depth.
  void pack(const Places& places, int64_t in, int64_t depth, W* packed) const {
    constexpr int64_t NR = Tile<W>::cols;
    for (int64_t l = 0; l < depth; ++l) {
      const int64_t at = places[static_cast<size_t>(l)];
      for (int64_t j = 0; j < block_; j += NR) {
        W* to_panel = packed + j * depth + l * NR;
        const int64_t count = std::min(NR, block_ - j);
        if (at < 0) {
          std::fill_n(to_panel, NR, W(0));
        } else {
          widen(count, x_ + at + in * block_ + j, to_panel);
          std::fill_n(to_panel + count, NR - count, W(0));
        }
      }
    }
  }

  const ConvGather& g_;
  const SparseWeightCut& cut_;
  int64_t block_;
  const T* x_;
  Strides4 from_;
  const T* dy_;
};

}  // namespace

void block_sparse_conv2d_backward_w(const Conv2dProblem& d, const Tensor& x_any,
                                    const Tensor& dy_any, const SparseTensor& dweight, Stream) {
  const Layout& layout = *dweight.layout;
  if (layout.nnz() == 0) return;
  const Tensor x = channel_runs(x_any), dy = channels_last(dy_any);
  const ConvGather g = forward_gather(d, {});
  const SparseWeightCut cut(d, layout);
  const int team = team_size(d.products() * layout.density(), worth_a_conv_thread);
  const int64_t size = dweight.values.numel(), tasks = static_cast<int64_t>(cut.tasks.size());
  visit_floating("block_sparse_conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    W* sums = scratch<W>(sums_slot, cut.parts * size);
    const SparseWeight<W, T> weight(g, cut, layout.block(), x, dy);
    parallel_each(tasks * cut.parts, team, [&](int64_t i) {
      weight.sum(cut.tasks[static_cast<size_t>(i % tasks)], i / tasks, sums + i / tasks * size);
    });
    T* out = dweight.values.data<T>();
    parallel_for(size, elementwise_grain, [&](int64_t first, int64_t last) {
      for (int64_t part = 1; part < cut.parts; ++part)
        for (int64_t i = first; i < last; ++i) sums[i] += sums[part * size + i];
      narrow(last - first, sums + first, out + first);
    });
  });
}

}  // namespace bs::cpu
