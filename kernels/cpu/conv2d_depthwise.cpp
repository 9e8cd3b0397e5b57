#include <bs/kernels/cpu/conv2d.h>
#include <bs/kernels/cpu/conv2d_epilogue.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <span>

namespace bs::cpu {

namespace {

constexpr int weight_slot = 6;
constexpr int64_t lanes = 64;  ///< channels that are summed at a time

template <class W, class T>
void add_products(int64_t n, const T* x, const W* w, W* sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += convert<W>(x[i]) * w[i];
}

/// The channels of one pixel of the result from c0 on, as many as there are sums.
template <class W, class T>
void sum_taps(const ConvGather& g, const ConvPhase& phase, const ConvPixel& at, const T* source,
              const Strides4& from, const W* weights, int64_t c0, std::span<W> sums) {
  std::ranges::fill(sums, W(0));
  const auto count = static_cast<int64_t>(sums.size());
  for (const ConvTap& tap : phase.taps) {
    const int64_t h = at.h * g.read.h + tap.h, w = at.w * g.read.w + tap.w;
    if (h < 0 || h >= g.h || w < 0 || w >= g.w) continue;
    const T* x = source + at.n * from.n + h * from.h + w * from.w + c0;
    const W* factors = weights + tap.first * g.groups + c0;
    if (count == lanes) {
      add_products(lanes, x, factors, sums.data());
    } else {
      add_products(count, x, factors, sums.data());
    }
  }
}

}  // namespace

void run_depthwise(const ConvGather& g, const Tensor& source, const Tensor& weight,
                   const ConvWeight& strides, const Conv2dEpilogue& e, const Tensor& result) {
  visit_floating("conv2d", result.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const Strides4 from(source), to_strides(result);
    const ConvEpilogue<W, T> epilogue(e);
    int64_t taps = 0;
    for (const ConvPhase& phase : g.phases) taps += static_cast<int64_t>(phase.taps.size());
    W* weights = scratch<W>(weight_slot, taps * g.groups);  // [taps, channels]
    for (const ConvPhase& phase : g.phases)
      for (const ConvTap& tap : phase.taps)
        for (int64_t c = 0; c < g.groups; ++c)
          weights[tap.first * g.groups + c] = convert<W>(
              weight.data<T>()[c * strides.group + tap.r * strides.r + tap.s * strides.s]);
    for (const ConvPhase& phase : g.phases) {
      const double work = static_cast<double>(result.numel()) * static_cast<double>(taps);
      const int team = team_size(work, worth_a_conv_thread / 8);
      parallel_each(g.n * phase.rows, team, [&](int64_t row) {
        W sums[lanes];
        for (int64_t i = row * phase.cols; i < (row + 1) * phase.cols; ++i) {
          const ConvPixel at = phase.pixel(i), to = g.target(phase, i);
          T* out =
              result.data<T>() + to.n * to_strides.n + to.h * to_strides.h + to.w * to_strides.w;
          for (int64_t c = 0; c < g.groups; c += lanes) {
            const int64_t count = std::min(lanes, g.groups - c);
            sum_taps(g, phase, at, source.data<T>(), from, weights, c,
                     std::span(sums, static_cast<size_t>(count)));
            epilogue.channels(c, count, to.n, to.h, to.w, sums);
            store_line(count, sums, out + c * to_strides.c, to_strides.c);
          }
        }
      });
    }
  });
}

void depthwise_backward_w(const Conv2dProblem& d, const Tensor& x_any, const Tensor& dy_any,
                          const Tensor& dweight) {
  const Tensor x = channel_runs(x_any), dy = channel_runs(dy_any);
  const Strides4 from(x), slope(dy);
  visit_floating("conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    // A thread sums some channels of one tap over all pixels, row by row.
    const int64_t pieces = ceil_div(d.c, lanes), taps = d.r * d.s;
    parallel_each(pieces * taps, team_size(d.products(), worth_a_conv_thread / 8), [&](int64_t i) {
      const int64_t c = i % pieces * lanes, r = i / pieces / d.s, s = i / pieces % d.s;
      const int64_t count = std::min(lanes, d.c - c);
      W total[lanes] = {}, sums[lanes], wide[lanes];
      for (int64_t row = 0; row < d.n * d.p; ++row) {
        const int64_t n = row / d.p, p = row % d.p;
        const int64_t h = p * d.stride.h + r * d.dilation.h - d.padding.top;
        if (h < 0 || h >= d.h) continue;
        std::fill_n(sums, lanes, W(0));
        for (int64_t q = 0; q < d.q; ++q) {
          const int64_t w = q * d.stride.w + s * d.dilation.w - d.padding.left;
          if (w < 0 || w >= d.w) continue;
          widen(count, dy.data<T>() + n * slope.n + p * slope.h + q * slope.w + c, wide);
          add_products(count, x.data<T>() + n * from.n + h * from.h + w * from.w + c, wide, sums);
        }
        for (int64_t j = 0; j < count; ++j) total[j] += sums[j];
      }
      for (int64_t j = 0; j < count; ++j)
        dweight.data<T>()[(c + j) * taps + r * d.s + s] = convert<T>(total[j]);
    });
  });
}

}  // namespace bs::cpu
