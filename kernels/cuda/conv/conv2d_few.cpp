#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/conv/conv2d_few.h>
#include <bs/lib/integers.h>

namespace bs::cuda {

Conv2dProblem with_whole_channels(const Conv2dProblem& problem) {
  Conv2dProblem whole = problem;
  whole.c = round_up(problem.c, 8);
  return whole;
}

std::optional<GatheredTaps> gathered_taps(const Conv2dProblem& p) {
  if (p.groups != 1 || p.c * p.r > GatheredTaps::channels || p.c * p.r * p.s < 2) return {};
  // Columns that a group has; behind it the next one begins at a pixel of the result.
  int64_t group = std::min(p.s, GatheredTaps::channels / (p.c * p.r));
  while (group > 0 && group < p.s && group * p.dilation.w % p.stride.w != 0) --group;
  if (group == 0) return {};
  GatheredTaps by;
  by.group = group;
  by.step_h = p.stride.h, by.step_w = p.stride.w;
  const int64_t groups = ceil_div(p.s, group);
  const int64_t step = groups == 1 ? 1 : group * p.dilation.w / p.stride.w;
  by.problem = p;
  by.problem.h = p.p, by.problem.w = p.q + (groups - 1) * step;
  by.problem.c = GatheredTaps::channels;
  by.problem.r = 1, by.problem.s = groups;
  by.problem.stride = {1, 1}, by.problem.dilation = {1, step}, by.problem.padding = {};
  constexpr int64_t most = INT16_MAX;
  if (p.r * p.dilation.h + p.padding.top > most || p.s * p.dilation.w + p.padding.left > most)
    return {};
  for (int64_t i = 0; i < GatheredTaps::channels; ++i) {
    const int64_t r = i / (group * p.c), b = i / p.c % group;
    by.taps[static_cast<size_t>(i)] = {static_cast<int16_t>(r * p.dilation.h - p.padding.top),
                                       static_cast<int16_t>(b * p.dilation.w - p.padding.left),
                                       static_cast<int16_t>(r < p.r ? i % p.c : -1)};
  }
  return by;
}

void scatter_taps(const GatheredTaps& by, const Tensor& from, const Tensor& dweight,
                  Stream stream) {
  const int64_t k = dweight.size(0), c = dweight.size(1), r = dweight.size(2);
  const int64_t groups = by.problem.s, group = by.group, row = GatheredTaps::channels;
  const Tensor places =
      from.as_strided({k, c, r, groups, group}, {groups * row, 1, group * c, row, c});
  const Tensor all = Tensor::empty({k, c, r, groups * group}, from.dtype(), from.device());
  copy(places, all.view({k, c, r, groups, group}), stream);
  copy(all.slice(3, 0, dweight.size(3)), dweight, stream);
}

}  // namespace bs::cuda
