#include <bs/kernels/cpu/conv2d.h>
#include <bs/kernels/cpu/conv2d_direct.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>

namespace bs::cpu {

namespace {

constexpr int rows_slot = 4, columns_slot = 5, sums_slot = 6;
constexpr int64_t most_side = 256;    ///< of a tile of the gradient
constexpr int64_t few_tiles = 32;     ///< fewer are cut along the pixels, too
constexpr int64_t least_part = 1024;  ///< pixels of such a part

/// How dweight, a matrix of output channels by steps of the forward's depth, is cut. The cut of the
/// pixels knows nothing of threads, so that sums are the same for any number of them.
struct WeightCut {
  int64_t columns;  ///< of a group's matrix
  int64_t tile_rows, tile_columns;
  int64_t row_tiles, column_tiles;
  int64_t part, parts;  ///< pixels summed apart from others

  template <class W>
  WeightCut(const ConvGather& g, int64_t pixels, int team, Type<W>)
      : columns(static_cast<int64_t>(g.phases[0].taps.size()) * g.run()),
        tile_rows(even_step(g.out, most_side, Tile<W>::rows)),
        tile_columns(even_step(columns, most_side, Tile<W>::cols)),
        row_tiles(ceil_div(g.out, tile_rows)),
        column_tiles(ceil_div(columns, tile_columns)) {
    const int64_t tiles = row_tiles * column_tiles * g.groups;
    const int64_t wanted =
        std::min(ceil_div(few_tiles, tiles), std::max<int64_t>(pixels / least_part, 1));
    part = ceil_div(pixels, wanted);
    parts = ceil_div(pixels, part);
    // A few more tiles, where the last threads would wait for a whole one.
    const int64_t others = row_tiles * g.groups * parts;
    while (others * column_tiles % team != 0 && others * column_tiles < 8 * team) {
      const int64_t width = even_step(columns, ceil_div(columns, column_tiles + 1), Tile<W>::cols);
      if (width == tile_columns) break;
      tile_columns = width;
      column_tiles = ceil_div(columns, width);
    }
  }
};

/// Columns [j0, j0 + columns) of the gathered rows of pixels [first, first + depth).
template <class W, class T>
void pack_columns(const ConvGather& g, const T* source, const Strides4& from, int64_t first,
                  int64_t depth, int64_t j0, int64_t columns, W* packed) {
  constexpr int64_t NR = Tile<W>::cols;
  const ConvPhase& phase = g.phases[0];
  const int64_t run = g.run(), end = j0 + columns, padded = round_up(columns, NR);
  const auto put = [&](int64_t l, int64_t j, int64_t count, const auto& write) {
    for (int64_t done = 0; done < count;) {
      const int64_t lane = (j + done) % NR, n = std::min(NR - lane, count - done);
      write(done, n, packed + (j + done - lane) * depth + l * NR + lane);
      done += n;
    }
  };
  const auto zero = [](int64_t, int64_t n, W* out) { std::fill_n(out, n, W(0)); };
  for (int64_t l = 0; l < depth; ++l) {
    const auto [n, p, q] = phase.pixel(first + l);
    for (int64_t j = j0; j < end;) {
      const ConvTap& tap = phase.taps[static_cast<size_t>(j / run)];
      const int64_t skip = j % run, count = std::min(run - skip, end - j);
      const int64_t h = p * g.read.h + tap.h, w = q * g.read.w + tap.w;
      const T* row = source + n * from.n + h * from.h;
      if (h < 0 || h >= g.h || w <= -g.width || w >= g.w) {
        put(l, j - j0, count, zero);
      } else if (w >= 0 && w + g.width <= g.w) {
        const T* x = row + w * from.w + skip;
        put(l, j - j0, count, [x](int64_t at, int64_t many, W* out) { widen(many, x + at, out); });
      } else {
        put(l, j - j0, count, [&](int64_t at, int64_t many, W* out) {
          for (int64_t i = 0; i < many; ++i) {
            const int64_t step = skip + at + i, column = w + step / g.in;
            const bool inside = column >= 0 && column < g.w;
            out[i] = inside ? convert<W>(row[column * from.w + step % g.in]) : W(0);
          }
        });
      }
      j += count;
    }
    put(l, columns, padded - columns, zero);
  }
}

/// One tile of the sums of one part, in W [output channels of a group, columns].
template <class W, class T>
void sum_tile(const ConvGather& g, const WeightCut& c, const Tensor& x, const Tensor& dy,
              int64_t tile, int64_t part, W* sums) {
  const int64_t row = tile % c.row_tiles * c.tile_rows;
  const int64_t column = tile / c.row_tiles % c.column_tiles * c.tile_columns;
  const int64_t group = tile / (c.row_tiles * c.column_tiles);
  const int64_t rows = std::min(c.tile_rows, g.out - row);
  const int64_t columns = std::min(c.tile_columns, c.columns - column);
  const int64_t all = g.n * g.phases[0].pixels();
  const int64_t begin = part * c.part, end = std::min(all, begin + c.part);
  const int64_t step = even_step(end - begin, Tile<W>::depth, 8), pitch = dy.size(1);
  W* a = scratch<W>(rows_slot, packed_a_size<W>(rows, step));
  W* b = scratch<W>(columns_slot, packed_b_size<W>(step, columns));
  const T* slope = dy.data<T>() + group * g.out + row;
  for (int64_t l = begin; l < end; l += step) {
    const int64_t depth = std::min(step, end - l);
    pack_a(rows, depth, slope + l * pitch, 1, pitch, a);
    pack_columns(g, x.data<T>() + group * g.in, Strides4(x), l, depth, column, columns, b);
    const PanelPair<W> pair{a, b};
    multiply_panels(rows, columns, depth, std::span<const PanelPair<W>>(&pair, 1),
                    packed_a<W>(depth), packed_b<W>(depth), W(1), W(l == begin ? 0 : 1),
                    sums + (group * g.out + row) * c.columns + column, c.columns, int64_t{1});
  }
}

/// The parts' sums of one output channel, added in their order and put where weights lie.
template <class W, class T>
void store_weights(const ConvGather& g, const Conv2dProblem& d, const WeightCut& c, W* sums,
                   int64_t k, T* dweight) {
  W* total = sums + k * c.columns;
  for (int64_t part = 1; part < c.parts; ++part) {
    const W* more = total + part * d.k * c.columns;
    for (int64_t j = 0; j < c.columns; ++j) total[j] += more[j];
  }
  T* out = dweight + k * g.in * d.r * d.s;
  for (const ConvTap& tap : g.phases[0].taps)
    for (int64_t s = 0; s < g.width; ++s) {
      const W* from_run = total + tap.first + s * g.in;
      for (int64_t i = 0; i < g.in; ++i)
        out[(i * d.r + tap.r) * d.s + tap.s + s] = convert<T>(from_run[i]);
    }
}

}  // namespace

void conv2d_backward_w(const Conv2dProblem& d, const Tensor& x_any, const Tensor& dy_any,
                       const Tensor& dweight, Stream) {
  if (d.group_c() == 1 && d.group_k() == 1) return depthwise_backward_w(d, x_any, dy_any, dweight);
  const Tensor x = channel_runs(x_any), dy = channels_last(dy_any);
  const ConvGather g = forward_gather(d, Strides4(x));
  if (is_direct(g)) return direct_backward_w(g, x, dy, dweight);
  const int team = team_size(d.products(), worth_a_conv_thread);
  visit_floating("conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const WeightCut c(g, d.n * d.p * d.q, team, Type<W>{});
    const int64_t size = d.k * c.columns, tiles = c.row_tiles * c.column_tiles * g.groups;
    W* sums = scratch<W>(sums_slot, c.parts * size);
    parallel_each(tiles * c.parts, team, [&](int64_t i) {
      sum_tile<W, T>(g, c, x, dy, i % tiles, i / tiles, sums + i / tiles * size);
    });
    parallel_for(d.k, ceil_div(elementwise_grain, c.columns * c.parts),
                 [&](int64_t first, int64_t last) {
                   for (int64_t k = first; k < last; ++k)
                     store_weights(g, d, c, sums, k, dweight.data<T>());
                 });
  });
}

}  // namespace bs::cpu
