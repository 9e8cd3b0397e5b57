#include <bs/kernels/cpu/conv2d.h>
#include <bs/kernels/cpu/conv2d_direct.h>

namespace bs::cpu {

namespace {

/// A group of few channels reads neighbouring columns of the filter as one run of memory.
constexpr int64_t few_channels = 16;

}  // namespace

Tensor channel_runs(const Tensor& x) {
  return x.size(1) == 1 || x.strides()[1] == 1 ? x : channels_last(x);
}

ConvGather forward_gather(const Conv2dProblem& d, const Strides4& source) {
  ConvGather g;
  g.n = d.n, g.h = d.h, g.w = d.w, g.groups = d.groups;
  g.in = d.group_c(), g.out = d.group_k();
  g.read = d.stride;
  const bool one_run = d.groups == 1 && d.c < few_channels && d.dilation.w == 1 &&
                       source.w == d.c && !g.is_depthwise();
  if (one_run) g.width = d.s;
  ConvPhase all{d.p, d.q, 0, 0, {}};
  int64_t first = 0;
  for (int64_t r = 0; r < d.r; ++r) {
    for (int64_t s = 0; s < d.s; s += g.width) {
      all.taps.push_back(
          {r * d.dilation.h - d.padding.top, s * d.dilation.w - d.padding.left, r, s, first});
      first += g.run();
    }
  }
  g.phases.push_back(std::move(all));
  return g;
}

ConvGather backward_gather(const Conv2dProblem& d) {
  ConvGather g;
  g.n = d.n, g.h = d.p, g.w = d.q, g.groups = d.groups;
  g.in = d.group_k(), g.out = d.group_c();
  g.write = d.stride;
  int64_t first = 0;
  for (int64_t top = 0; top < std::min(d.stride.h, d.h); ++top) {
    for (int64_t left = 0; left < std::min(d.stride.w, d.w); ++left) {
      ConvPhase phase{
          (d.h - top - 1) / d.stride.h + 1, (d.w - left - 1) / d.stride.w + 1, top, left, {}};
      for (int64_t r = 0; r < d.r; ++r) {
        for (int64_t s = 0; s < d.s; ++s) {
          const int64_t h = top + d.padding.top - r * d.dilation.h;
          const int64_t w = left + d.padding.left - s * d.dilation.w;
          if (h % d.stride.h != 0 || w % d.stride.w != 0) continue;
          phase.taps.push_back({h / d.stride.h, w / d.stride.w, r, s, first});
          first += g.in;
        }
      }
      g.phases.push_back(std::move(phase));
    }
  }
  return g;
}

namespace {

void run(const ConvGather& g, const Tensor& source, const Tensor& weight, const ConvWeight& strides,
         const Conv2dEpilogue& e, const Tensor& result) {
  const auto by = g.is_depthwise() ? run_depthwise : is_direct(g) ? run_direct : run_gather;
  by(g, source, weight, strides, e, result);
}

}  // namespace

void conv2d(const Conv2dProblem& d, const Tensor& x, const Tensor& weight, const Conv2dEpilogue& e,
            const Tensor& y, Stream) {
  const Tensor source = channel_runs(x);
  const auto& [k, c, r, s] = d.weight;
  run(forward_gather(d, Strides4(source)), source, weight,
      {.group = d.group_k() * k, .in = c, .out = k, .r = r, .s = s}, e, y);
}

void conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy, const Tensor& weight,
                       const Conv2dEpilogue& e, const Tensor& dx, Stream) {
  const auto& [k, c, r, s] = d.weight;
  run(backward_gather(d), channel_runs(dy), weight,
      {.group = d.group_k() * k, .in = k, .out = c, .r = r, .s = s}, e, dx);
}

}  // namespace bs::cpu
