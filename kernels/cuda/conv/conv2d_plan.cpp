#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/kernels/cuda/conv/conv2d_plan.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs::cuda {

namespace {

constexpr std::array<Conv2dTile, 8> tiles{
    {{.rows = 64, .columns = 64, .groups = 1, .stages = 8},
     {.rows = 128, .columns = 64, .groups = 2, .stages = 6},
     {.rows = 256, .columns = 64, .groups = 2, .stages = 4},
     {.rows = 192, .columns = 64, .groups = 3, .stages = 5},
     {.rows = 128, .columns = 128, .groups = 2, .stages = 5},
     {.rows = 64, .columns = 192, .groups = 1, .stages = 5},
     {.rows = 128, .columns = 192, .groups = 2, .stages = 5},
     {.rows = 128, .columns = 256, .groups = 2, .stages = 4}}};

}  // namespace

std::span<const Conv2dTile> conv2d_tiles() { return tiles; }

bool fits_cluster(const Conv2dTile& t, int cluster_k) {
  const int own = (t.columns / cluster_k + 15) / 16 * 16;
  const int scratch = 4 * t.groups * 16 * 40 * 4;
  return t.stages * ((t.rows + t.columns) * 128 + 32) + (cluster_k - 1) * t.rows * own * 4 +
             scratch + 1040 <=
         227 * 1024;
}

Conv2dProduct conv2d_product(const Conv2dProblem& p, Conv2dKind kind) {
  const int64_t taps = p.r * p.s;
  switch (kind) {
    case Conv2dKind::fprop:
      return {p.n * p.p * p.q, p.k, taps * ceil_div(p.c, 64), 1};
    case Conv2dKind::dgrad:
      return {p.n * ceil_div(p.h, p.stride.h) * ceil_div(p.w, p.stride.w), p.c,
              taps * ceil_div(p.k, 64), p.stride.h * p.stride.w};
    default:
      return {p.k, taps * p.c, ceil_div(p.n * p.p * p.q, 64), 1};
  }
}

bool fits_warpgroups(const Conv2dProblem& p, Conv2dKind kind) {
  if (p.groups != 1 || p.r * p.s > device::most_conv2d_taps) return false;
  if (p.c % 8 != 0 || (kind != Conv2dKind::fprop && p.k % 8 != 0)) return false;
  if (kind == Conv2dKind::wgrad && p.c % 64 != 0) return false;
  if (kind == Conv2dKind::dgrad && p.stride.h * p.stride.w > device::most_conv2d_phases)
    return false;
  const Conv2dProduct product = conv2d_product(p, kind);
  constexpr int64_t most = int64_t{1} << 30;
  if (product.rows > most || product.columns > most || product.steps > most / 64) return false;
  if ((p.r - 1) * p.dilation.h > 255 || (p.s - 1) * p.dilation.w > 255) return false;
  static const int aligned alignas(16) = 0;
  Im2colTensor walk = conv2d_walk(p, kind);
  walk.address = &aligned;
  return fits_im2col(walk);
}

double conv2d_time(const Conv2dProblem& p, const Conv2dPlan& plan, const Gpu& gpu) {
  const Conv2dForm& f = plan.form;
  const Conv2dProduct product = conv2d_product(p, f.kind);
  const int64_t tiles = product.phases * ceil_div(product.rows, f.tile.rows) *
                        ceil_div(product.columns, f.tile.columns);
  const int64_t parts = int64_t{f.cluster_k} * plan.slices;
  const int64_t clusters = gpu.multiprocessors / f.cluster_k * 9 / 10;
  const int64_t resident = f.cluster_k > 2 ? clusters : gpu.multiprocessors / f.cluster_k;
  const auto waves = static_cast<double>(ceil_div(tiles * plan.slices, resident));
  const double steps = static_cast<double>(ceil_div(product.steps, product.phases * parts));
  // Of a step: the products, or what L2 hands over, whichever takes longer.
  const double products = f.tile.rows * f.tile.columns * 64.0;
  const double rate = 1.2 * gpu.half_rate() / gpu.multiprocessors;
  const double lines = (f.tile.rows + f.tile.columns) * gpu.line() / 2;
  const double step = std::max(products / rate, lines);
  const double sums = f.tile.rows * f.tile.columns;
  const double end = sums * .12 + (f.cluster_k > 1 ? 3500 : 0);
  const double joined = plan.slices == 1 ? 0
                                         : gpu.launch / 2 + static_cast<double>(tiles) * sums * 8 *
                                                                plan.slices / gpu.memory_rate;
  return gpu.launch + waves * (steps * step + end) + joined;
}

Conv2dPlan plan_conv2d(const Conv2dProblem& p, Conv2dKind kind, DType dtype, bool plain,
                       const Gpu& gpu) {
  Conv2dPlan best;
  const bool one_tap = p.r == 1 && p.s == 1 && p.stride == Extent2{1, 1} &&
                       p.padding == Padding2{} && p.groups == 1 && p.p == p.h && p.q == p.w;
  if (one_tap && plain) {
    best.path = Conv2dPath::matmul;
    return best;
  }
  if (gpu.capability != 90 || (dtype != f16 && dtype != bf16) || !fits_warpgroups(p, kind))
    return best;
  double least = 0;
  const Conv2dProduct product = conv2d_product(p, kind);
  for (const Conv2dTile& tile : tiles) {
    const int64_t count = product.phases * ceil_div(product.rows, tile.rows) *
                          ceil_div(product.columns, tile.columns);
    for (const int cluster_k : {1, 2, 3, 4, 8}) {
      Conv2dPlan plan{.path = Conv2dPath::warpgroup,
                      .form = {.kind = kind,
                               .dtype = dtype,
                               .tile = tile,
                               .cluster_k = cluster_k,
                               .scattered = product.phases > 1}};
      if (cluster_k > 1 && !fits_cluster(tile, cluster_k)) continue;
      if (cluster_k > 1 && product.steps < 4 * cluster_k * product.phases) continue;
      const auto most = std::min<int64_t>(product.steps / 4, gpu.multiprocessors / count);
      for (const int64_t slices : {int64_t{1}, most}) {
        if (slices < 1 || (slices > 1 && (kind != Conv2dKind::wgrad || cluster_k > 1))) continue;
        plan.slices = static_cast<int>(slices);
        plan.form.sliced = slices > 1;
        const double time = conv2d_time(p, plan, gpu);
        if (best.path == Conv2dPath::warpgroup && time >= least) continue;
        least = time;
        best = plan;
      }
    }
  }
  return best;
}

}  // namespace bs::cuda
