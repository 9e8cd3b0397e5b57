#include <bs/kernels/cpu/conv2d_direct.h>

#include <bs/kernels/cpu/conv2d_result.h>
#include <bs/kernels/cpu/parallel.h>

#include <array>
#include <cstring>

namespace bs::cpu {

namespace {

constexpr int frame_slot = 4, slope_slot = 7, weight_slot = 6;
constexpr int64_t most_channels = 64, most_frame = 32768;  ///< elements of a frame
constexpr int64_t least_images = 4, most_parts = 16;

template <class W>
constexpr int64_t lanes_of = Tile<W>::lanes;
template <class W>
using Vector [[gnu::vector_size(vector_bytes), gnu::aligned(alignof(W)), gnu::may_alias]] = W;

/// A tap of one column.
struct DirectTap {
  int64_t r, s, h, w;  ///< in the filter, and from a result's pixel in the source
};

std::vector<DirectTap> taps_of(const ConvGather& g, const ConvPhase& phase) {
  std::vector<DirectTap> taps;
  for (const ConvTap& tap : phase.taps)
    for (int64_t i = 0; i < g.width; ++i) taps.push_back({tap.r, tap.s + i, tap.h, tap.w + i});
  return taps;
}

/// The part of the source that a phase reads of an image, pixels of zeros around it included.
struct Frame {
  int64_t top = 0, left = 0, rows = 0, cols = 0;  ///< in the source

  Frame(const ConvGather& g, const ConvPhase& phase, const std::vector<DirectTap>& taps) {
    if (taps.empty() || phase.pixels() == 0) return;
    int64_t bottom = top = taps[0].h, right = left = taps[0].w;
    for (const DirectTap& tap : taps) {
      top = std::min(top, tap.h), bottom = std::max(bottom, tap.h);
      left = std::min(left, tap.w), right = std::max(right, tap.w);
    }
    rows = bottom - top + (phase.rows - 1) * g.read.h + 1;
    cols = right - left + (phase.cols - 1) * g.read.w + 1;
  }
  int64_t size(int64_t channels) const { return rows * cols * channels; }
  int64_t offset(const DirectTap& tap, int64_t channels) const {
    return ((tap.h - top) * cols + tap.w - left) * channels;
  }

  /// Copies an image whose neighbours in memory are channels.
  template <class W, class T>
  void fill(const ConvGather& g, const T* image, const Strides4& from, W* to) const {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t h = top + i;
      W* const row = to + i * cols * g.in;
      const int64_t first = std::clamp<int64_t>(-left, 0, cols);
      const int64_t last = h < 0 || h >= g.h ? first : std::clamp(g.w - left, first, cols);
      std::fill_n(row, first * g.in, W(0));
      if (from.w == g.in) {
        if (last > first)
          widen((last - first) * g.in, image + h * from.h + (left + first) * from.w,
                row + first * g.in);
      } else {
        for (int64_t j = first; j < last; ++j)
          widen(g.in, image + h * from.h + (left + j) * from.w, row + j * g.in);
      }
      std::fill_n(row + last * g.in, (cols - last) * g.in, W(0));
    }
  }
};

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

/// Where the sums of a pixel go, N vectors of channels from `channel` on.
template <class W>
struct DirectTarget {
  ConvSums<W> sums;
  int64_t channel, channels;

  template <int N>
  void store(int64_t pixel, const Vector<W> (&values)[N]) const {
    constexpr int64_t lanes = lanes_of<W>;
    W* to = sums.data + pixel * sums.row + channel * sums.col;
    const int64_t count = std::min(channels - channel, N * lanes);
    if (sums.col == 1) {
      std::memcpy(to, values, static_cast<size_t>(count) * sizeof(W));
      return;
    }
    for (int64_t k = 0; k < count; ++k) to[k * sums.col] = values[k / lanes][k % lanes];
  }
};

/// Sums of P pixels of a row, `step` apart in the frame, by N vectors of channels.
template <class W, int P, int N>
void sum_pixels(const W* frame, std::span<const int64_t> taps, int64_t in, int64_t step,
                const W* weights, int64_t pitch, const DirectTarget<W>& target, int64_t pixel) {
  using V = Vector<W>;
  V sums[P][N] = {};
  for (const int64_t tap : taps) {
    const W* x = frame + tap;
    for (int64_t c = 0; c < in; ++c, weights += pitch) {
      V w[N];
#pragma GCC unroll 2
      for (int v = 0; v < N; ++v) w[v] = *reinterpret_cast<const V*>(weights + v * lanes_of<W>);
#pragma GCC unroll 16
      for (int j = 0; j < P; ++j)
#pragma GCC unroll 2
        for (int v = 0; v < N; ++v) sums[j][v] += x[j * step + c] * w[v];
    }
  }
  for (int j = 0; j < P; ++j) target.template store<N>(pixel + j, sums[j]);
}

/// The same for a whole row of `count` pixels.
template <class W, int N>
void sum_row(const W* frame, std::span<const int64_t> taps, int64_t in, int64_t step,
             const W* weights, int64_t pitch, const DirectTarget<W>& target, int64_t pixel,
             int64_t count) {
  constexpr int most = vector_bytes == 64 || N == 1 ? 10 : 5;  // sums that registers hold
  const auto run = [&]<int P>(std::integral_constant<int, P>) {
    for (; count >= P; count -= P, pixel += P, frame += P * step)
      sum_pixels<W, P, N>(frame, taps, in, step, weights, pitch, target, pixel);
  };
  run(std::integral_constant<int, most>{});
  run(std::integral_constant<int, 5>{});
  run(std::integral_constant<int, 2>{});
  run(std::integral_constant<int, 1>{});
}

/// A phase of one image.
template <class W>
void sum_image(const ConvGather& g, const ConvPhase& phase, const Frame& frame, const W* filled,
               std::span<const int64_t> taps, const W* weights, int64_t pitch,
               const ConvSums<W>& sums) {
  constexpr int64_t lanes = lanes_of<W>;
  for (int64_t k = 0; k < pitch;) {
    const DirectTarget<W> target{sums, k, g.out};
    const bool two = pitch - k >= 2 * lanes;
    for (int64_t p = 0; p < phase.rows; ++p)
      (two ? sum_row<W, 2> : sum_row<W, 1>)(filled + p * g.read.h * frame.cols * g.in, taps, g.in,
                                            g.read.w * g.in, weights + k, pitch, target,
                                            p * phase.cols, phase.cols);
    k += two ? 2 * lanes : lanes;
  }
}

double work_of(const ConvGather& g) {
  double work = 0;
  for (const ConvPhase& phase : g.phases)
    work += static_cast<double>(phase.pixels() * g.n * g.run() * g.out) *
            static_cast<double>(phase.taps.size());
  return work;
}

}  // namespace

bool is_direct(const ConvGather& g) {
  if (g.groups != 1 || g.in > most_channels || g.out > most_channels || g.n < least_images)
    return false;
  for (const ConvPhase& phase : g.phases) {
    const std::vector<DirectTap> taps = taps_of(g, phase);
    if (taps.size() < 2 && g.phases.size() == 1)
      return false;  // read in place without a frame, too
    if (Frame(g, phase, taps).size(g.in) > most_frame) return false;
  }
  return true;
}

void run_direct(const ConvGather& g, const Tensor& source, const Tensor& weight,
                const ConvWeight& strides, const Conv2dEpilogue& epilogue, const Tensor& result) {
  const int team = team_size(work_of(g), worth_a_conv_thread);
  const Strides4 from(source);
  visit_floating("conv2d", result.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t pitch = round_up(g.out, lanes_of<W>);
    const ConvResult<W, T> results(g, epilogue, result);
    for (const ConvPhase& phase : g.phases) {
      const std::vector<DirectTap> taps = taps_of(g, phase);
      const Frame frame(g, phase, taps);
      std::vector<int64_t> offsets;
      offsets.reserve(taps.size());
      for (const DirectTap& tap : taps) offsets.push_back(frame.offset(tap, g.in));
      W* weights = scratch<W>(weight_slot, static_cast<int64_t>(taps.size()) * g.in * pitch);
      lay_out_weights(g, taps, weight.data<T>(), strides, pitch, weights);
      parallel_each(g.n, team, [&](int64_t n) {
        const ConvBlock block{phase, 0, n * phase.pixels(), phase.pixels(), 0, g.out};
        W* filled = scratch<W>(frame_slot, frame.size(g.in));
        frame.fill(g, source.data<T>() + n * from.n, from, filled);
        const ConvSums<W> sums = results.sums(block);
        sum_image<W>(g, phase, frame, filled, offsets, weights, pitch, sums);
        results.finish(block, sums);
      });
    }
  });
}

namespace {

/// Adds to P rows of the gradient, each of a tap and a channel, what the pixels of an image say.
template <class W, int P, int N>
void add_rows(const ConvGather& g, const Frame& frame, const W* filled, const int64_t* offsets,
              const W* slope, int64_t pitch, W* sums) {
  using V = Vector<W>;
  const ConvPhase& phase = g.phases[0];
  V total[P][N] = {};
  const W* at[P];
  for (int j = 0; j < P; ++j) at[j] = filled + offsets[j];
  for (int64_t p = 0; p < phase.rows; ++p) {
    int64_t pixel = p * g.read.h * frame.cols * g.in;
    for (int64_t q = 0; q < phase.cols; ++q, pixel += g.read.w * g.in, slope += pitch) {
      V d[N];
#pragma GCC unroll 2
      for (int v = 0; v < N; ++v) d[v] = *reinterpret_cast<const V*>(slope + v * lanes_of<W>);
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j)
#pragma GCC unroll 2
        for (int v = 0; v < N; ++v) total[j][v] += at[j][pixel] * d[v];
    }
  }
  for (int j = 0; j < P; ++j)
    for (int v = 0; v < N; ++v) {
      auto& sum = *reinterpret_cast<V*>(sums + j * pitch + v * lanes_of<W>);
      sum += total[j][v];
    }
}

/// All rows, by N vectors of channels.
template <class W, int N>
void add_image(const ConvGather& g, const Frame& frame, const W* filled,
               std::span<const int64_t> offsets, const W* slope, int64_t pitch, W* sums) {
  constexpr int most = vector_bytes == 64 || N == 1 ? 8 : 4;
  size_t row = 0;
  const auto run = [&]<int P>(std::integral_constant<int, P>) {
    for (; offsets.size() - row >= P; row += P)
      add_rows<W, P, N>(g, frame, filled, offsets.data() + row, slope, pitch,
                        sums + static_cast<int64_t>(row) * pitch);
  };
  run(std::integral_constant<int, most>{});
  run(std::integral_constant<int, 4>{});
  run(std::integral_constant<int, 1>{});
}

/// Images [begin, end): their share of the gradient, [taps, channels in, pitch].
template <class W, class T>
void sum_images(const ConvGather& g, const Frame& frame, std::span<const int64_t> offsets,
                const Tensor& x, const Tensor& dy, int64_t begin, int64_t end, int64_t pitch,
                W* sums) {
  constexpr int64_t lanes = lanes_of<W>;
  const int64_t pixels = g.phases[0].pixels();
  const Strides4 from(x);
  W* filled = scratch<W>(frame_slot, frame.size(g.in));
  W* slope = scratch<W>(slope_slot, pixels * pitch);
  std::fill_n(sums, static_cast<int64_t>(offsets.size()) * pitch, W(0));
  for (int64_t n = begin; n < end; ++n) {
    frame.fill(g, x.data<T>() + n * from.n, from, filled);
    const T* given = dy.data<T>() + n * pixels * g.out;
    for (int64_t i = 0; i < pixels; ++i) {
      widen(g.out, given + i * g.out, slope + i * pitch);
      std::fill(slope + i * pitch + g.out, slope + (i + 1) * pitch, W(0));
    }
    for (int64_t k = 0; k < pitch;) {
      const bool two = pitch - k >= 2 * lanes;
      (two ? add_image<W, 2> : add_image<W, 1>)(g, frame, filled, offsets, slope + k, pitch,
                                                sums + k);
      k += two ? 2 * lanes : lanes;
    }
  }
}

}  // namespace

void direct_backward_w(const ConvGather& g, const Tensor& x, const Tensor& dy,
                       const Tensor& dweight) {
  const int team = team_size(work_of(g), worth_a_conv_thread);
  const std::vector<DirectTap> taps = taps_of(g, g.phases[0]);
  const Frame frame(g, g.phases[0], taps);
  std::vector<int64_t> offsets;
  for (const DirectTap& tap : taps)
    for (int64_t c = 0; c < g.in; ++c) offsets.push_back(frame.offset(tap, g.in) + c);
  const auto rows = static_cast<int64_t>(offsets.size());
  const int64_t part = ceil_div(g.n, most_parts), parts = ceil_div(g.n, part);
  visit_floating("conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t pitch = round_up(g.out, lanes_of<W>);
    W* sums = scratch<W>(weight_slot, parts * rows * pitch);
    parallel_each(parts, team, [&](int64_t i) {
      sum_images<W, T>(g, frame, offsets, x, dy, i * part, std::min(g.n, (i + 1) * part), pitch,
                       sums + i * rows * pitch);
    });
    for (int64_t i = 1; i < parts; ++i)
      for (int64_t at = 0; at < rows * pitch; ++at) sums[at] += sums[i * rows * pitch + at];
    T* out = dweight.data<T>();
    const int64_t height = dweight.size(2), width = dweight.size(3);
    for (size_t t = 0; t < taps.size(); ++t)
      for (int64_t c = 0; c < g.in; ++c)
        for (int64_t k = 0; k < g.out; ++k)
          out[((k * g.in + c) * height + taps[t].r) * width + taps[t].s] =
              from<W, T>(sums[(static_cast<int64_t>(t) * g.in + c) * pitch + k]);
  });
}

}  // namespace bs::cpu
