#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <vector>

namespace bs::cuda {

namespace {

/// One axis of the gradient of an input: pixel stride * i + phase has the inputs i + offset of dy,
/// one for each tap of the phase.
struct PhaseAxis {
  struct Tap {
    int phase, number, offset;
  };
  std::vector<Tap> taps;
  int first = 0;  // the least offset

  PhaseAxis(int64_t filter, int64_t stride, int64_t dilation, int64_t padding) {
    for (int64_t r = 0; r < filter; ++r) {
      const int64_t at = padding - r * dilation;  // pixel - stride * input
      const int64_t phase = ((-at) % stride + stride) % stride;
      taps.push_back(
          {static_cast<int>(phase), static_cast<int>(r), static_cast<int>((phase + at) / stride)});
    }
    first = taps.front().offset;
    for (const Tap& tap : taps) first = std::min(first, tap.offset);
  }
};

device::Conv2dTap tap_of(int64_t h, int64_t w, int64_t number) {
  return {static_cast<unsigned char>(h), static_cast<unsigned char>(w),
          static_cast<unsigned short>(number)};
}

void fill_phases(device::Conv2dGrid& g, const Conv2dProblem& p) {
  const PhaseAxis down(p.r, p.stride.h, p.dilation.h, p.padding.top);
  const PhaseAxis across(p.s, p.stride.w, p.dilation.w, p.padding.left);
  g.first_h = down.first;
  g.first_w = across.first;
  int count = 0;
  for (int phase = 0; phase < g.phases; ++phase) {
    g.first_tap[phase] = static_cast<unsigned short>(count);
    for (const auto& r : down.taps)
      for (const auto& s : across.taps)
        if (r.phase == phase / g.phase_w && s.phase == phase % g.phase_w)
          g.taps[count++] =
              tap_of(r.offset - down.first, s.offset - across.first, r.number * p.s + s.number);
  }
  g.first_tap[g.phases] = static_cast<unsigned short>(count);
}

}  // namespace

device::Conv2dGrid conv2d_grid(const Conv2dProblem& p, Conv2dKind kind) {
  device::Conv2dGrid g{};
  g.images = static_cast<int>(p.n);
  if (kind == Conv2dKind::dgrad) {
    g.phase_h = static_cast<int>(p.stride.h);
    g.phase_w = static_cast<int>(p.stride.w);
    g.phases = g.phase_h * g.phase_w;
    g.height = static_cast<int>(ceil_div(p.h, p.stride.h));
    g.width = static_cast<int>(ceil_div(p.w, p.stride.w));
    g.step_h = g.step_w = 1;
    g.channels = static_cast<int>(p.k);
    g.height_in = static_cast<int>(p.p);
    g.width_in = static_cast<int>(p.q);
    g.result_height = static_cast<int>(p.h);
    g.result_width = static_cast<int>(p.w);
    fill_phases(g, p);
    return g;
  }
  g.phases = g.phase_h = g.phase_w = 1;
  g.height = g.result_height = static_cast<int>(p.p);
  g.width = g.result_width = static_cast<int>(p.q);
  g.step_h = static_cast<int>(p.stride.h);
  g.step_w = static_cast<int>(p.stride.w);
  g.first_h = -static_cast<int>(p.padding.top);
  g.first_w = -static_cast<int>(p.padding.left);
  g.channels = static_cast<int>(p.c);
  g.height_in = static_cast<int>(p.h);
  g.width_in = static_cast<int>(p.w);
  g.first_tap[1] = static_cast<unsigned short>(p.r * p.s);
  for (int64_t i = 0; i < p.r * p.s; ++i)
    g.taps[i] = tap_of(i / p.s * p.dilation.h, i % p.s * p.dilation.w, i);
  return g;
}

Im2colTensor conv2d_walk(const Conv2dProblem& p, Conv2dKind kind) {
  const bool gradient = kind == Conv2dKind::dgrad;
  const int64_t c = gradient ? p.k : p.c, w = gradient ? p.q : p.w, h = gradient ? p.p : p.h;
  const device::Conv2dGrid g = conv2d_grid(p, kind);
  Im2colTensor walk;
  walk.dims = {c, w, h, p.n};
  walk.strides = {0, c * 2, w * c * 2, h * w * c * 2};
  walk.first = {g.first_w, g.first_h};
  walk.count = {g.width, g.height};
  walk.step = {g.step_w, g.step_h};
  walk.channels = 64;
  walk.pixels = 64;
  walk.swizzle = TensorMapSwizzle::bytes_128;
  return walk;
}

}  // namespace bs::cuda
