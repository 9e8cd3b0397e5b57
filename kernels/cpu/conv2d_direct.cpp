#include <bs/kernels/cpu/conv2d_direct.h>

#include <bs/kernels/cpu/conv2d_frame.h>
#include <bs/kernels/cpu/conv2d_result.h>
#include <bs/kernels/cpu/parallel.h>

#include <cstring>

namespace bs::cpu {

namespace {

constexpr int frame_slot = 4, weight_slot = 6;
constexpr int64_t most_channels = 64, least_strips = 4;

/// Vectors of channels of the result; half as long where few channels would fill a whole one.
template <class W, int Bytes>
struct Lanes {
  using Vector [[gnu::vector_size(Bytes), gnu::aligned(alignof(W)), gnu::may_alias]] = W;
  static constexpr int64_t count = Bytes / static_cast<int64_t>(sizeof(W));
};
constexpr int half_vector = std::max(16, vector_bytes / 2);

/// Weights [taps, channels in, channels out], the last filled up to whole vectors with zeros.
template <class W, class T>
void lay_out_weights(const ConvGather& g, const std::vector<DirectTap>& taps, const T* weight,
                     const ConvWeight& at, int64_t pitch, W* to) {
  for (const DirectTap& tap : taps)
    for (int64_t c = 0; c < g.in; ++c, to += pitch) {
      const T* from = weight + tap.r * at.r + tap.s * at.s + c * at.in;
      for (int64_t k = 0; k < g.out; ++k) to[k] = static_cast<W>(from[k * at.out]);
      std::fill(to + g.out, to + pitch, W(0));
    }
}

/// What the pixels of a row are summed from, and where their sums go.
template <class W>
struct DirectRow {
  std::span<const int64_t> taps;
  int64_t in, step;  ///< channels, and from a pixel of the frame to the next
  const W* weights;  ///< from the row's first channel on
  int64_t pitch;
  ConvSums<W> sums;
  int64_t channel, channels;

  template <int Bytes, int N>
  void store(int64_t pixel, const typename Lanes<W, Bytes>::Vector (&values)[N]) const {
    constexpr int64_t lanes = Lanes<W, Bytes>::count;
    W* to = sums.data + pixel * sums.row + channel * sums.col;
    const int64_t count = std::min(channels - channel, N * lanes);
    if (sums.col == 1) {
      std::memcpy(to, values, static_cast<size_t>(count) * sizeof(W));
      return;
    }
    for (int64_t k = 0; k < count; ++k) to[k * sums.col] = values[k / lanes][k % lanes];
  }
};

/// Sums of P pixels by N vectors of channels.
template <class W, int Bytes, int P, int N>
void sum_pixels(const DirectRow<W>& row, const W* frame, int64_t pixel) {
  using V = typename Lanes<W, Bytes>::Vector;
  V sums[P][N] = {};
  const W* weights = row.weights;
  const int64_t step = row.step;
  // A pointer for each three pixels: an address of the processor's adds one step, or two.
  const W* at[ceil_div(P, 3)];
  for (const int64_t tap : row.taps) {
    for (int j = 0; j < P; j += 3) at[j / 3] = frame + tap + j * step;
    for (int64_t c = 0; c < row.in; ++c, weights += row.pitch) {
      V w[N];
#pragma GCC unroll 2
      for (int v = 0; v < N; ++v)
        w[v] = *reinterpret_cast<const V*>(weights + v * Lanes<W, Bytes>::count);
#pragma GCC unroll 16
      for (int j = 0; j < P; ++j)
#pragma GCC unroll 2
        for (int v = 0; v < N; ++v) sums[j][v] += at[j / 3][j % 3 * step] * w[v];
#pragma GCC unroll 4
      for (const W*& x : at) ++x;
    }
  }
  for (int j = 0; j < P; ++j) row.template store<Bytes, N>(pixel + j, sums[j]);
}

/// The same for `count` pixels.
template <class W, int Bytes, int N>
void sum_row(const DirectRow<W>& row, const W* frame, int64_t pixel, int64_t count) {
  constexpr int most = vector_bytes == 64 || N == 1 ? 10 : 5;  // sums that registers hold
  const auto run = [&]<int P>(std::integral_constant<int, P>) {
    for (; count >= P; count -= P, pixel += P, frame += P * row.step)
      sum_pixels<W, Bytes, P, N>(row, frame, pixel);
  };
  run(std::integral_constant<int, most>{});
  run(std::integral_constant<int, 5>{});
  run(std::integral_constant<int, 2>{});
  run(std::integral_constant<int, 1>{});
}

/// `rows` rows of `cols` pixels, `down` apart in the frame.
template <class W, int Bytes>
void sum_strip(DirectRow<W> row, const W* frame, int64_t down, int64_t rows, int64_t cols) {
  constexpr int64_t lanes = Lanes<W, Bytes>::count;
  const W* const weights = row.weights;
  for (row.channel = 0; row.channel < row.pitch;) {
    const bool two = row.pitch - row.channel >= 2 * lanes;
    row.weights = weights + row.channel;
    for (int64_t p = 0; p < rows; ++p)
      (two ? sum_row<W, Bytes, 2> : sum_row<W, Bytes, 1>)(row, frame + p * down, p * cols, cols);
    row.channel += two ? 2 * lanes : lanes;
  }
}

}  // namespace

bool is_direct(const ConvGather& g) {
  if (g.groups != 1 || g.in > most_channels || g.out > most_channels) return false;
  for (const ConvPhase& phase : g.phases) {
    const std::vector<DirectTap> taps = taps_of(g, phase);
    if (taps.size() < 2 && g.phases.size() == 1)
      return false;  // read in place without a frame, too
    const Frame frame(g, phase, taps);
    if (!frame.fits() || g.n * frame.strips(phase) < least_strips) return false;
  }
  return true;
}

void run_direct(const ConvGather& g, const Tensor& source, const Tensor& weight,
                const ConvWeight& strides, const Conv2dEpilogue& epilogue, const Tensor& result) {
  const int team = team_size(g.products(), worth_a_conv_thread);
  const Strides4 from(source);
  visit_floating("conv2d", result.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const bool few = g.out <= Lanes<W, half_vector>::count;
    const int64_t pitch =
        round_up(g.out, few ? Lanes<W, half_vector>::count : Lanes<W, vector_bytes>::count);
    const ConvResult<W, T> results(g, epilogue, result);
    for (const ConvPhase& phase : g.phases) {
      const std::vector<DirectTap> taps = taps_of(g, phase);
      const Frame frame(g, phase, taps);
      std::vector<int64_t> offsets;
      offsets.reserve(taps.size());
      for (const DirectTap& tap : taps) offsets.push_back(frame.offset(tap, g.in));
      W* weights = scratch<W>(weight_slot, static_cast<int64_t>(taps.size()) * g.in * pitch);
      lay_out_weights(g, taps, weight.data<T>(), strides, pitch, weights);
      const int64_t strips = frame.strips(phase);
      parallel_each(g.n * strips, team, [&](int64_t i) {
        const int64_t n = i / strips, first = i % strips * frame.strip();
        const int64_t rows = std::min(frame.strip(), phase.rows - first);
        const ConvBlock block{
            phase, 0, n * phase.pixels() + first * phase.cols, rows * phase.cols, 0, g.out};
        W* filled = scratch<W>(frame_slot, frame.size(g.in));
        frame.fill(g, g.in, source.data<T>() + n * from.n, from, first, rows, filled);
        const DirectRow<W> row{offsets, g.in, g.read.w * g.in, weights, pitch, results.sums(block),
                               0,       g.out};
        (few ? sum_strip<W, half_vector> : sum_strip<W, vector_bytes>)(row, filled, frame.row(g.in),
                                                                       rows, phase.cols);
        results.finish(block, row.sums);
      });
    }
  });
}

}  // namespace bs::cpu
