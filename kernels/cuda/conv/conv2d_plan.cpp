#include <bs/kernels/cuda/conv/conv2d_few.h>
#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/kernels/cuda/conv/conv2d_plan.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <numeric>

namespace bs::cuda {

namespace {

// The first one spills where the depth is pixels.
constexpr std::array<Conv2dTile, 8> tiles{
    {{.rows = 256, .columns = 64, .groups = 2, .stages = 4},
     {.rows = 64, .columns = 64, .groups = 1, .stages = 8},
     {.rows = 128, .columns = 64, .groups = 2, .stages = 6},
     {.rows = 192, .columns = 64, .groups = 3, .stages = 5},
     {.rows = 128, .columns = 128, .groups = 2, .stages = 5},
     {.rows = 64, .columns = 192, .groups = 1, .stages = 5},
     {.rows = 128, .columns = 192, .groups = 2, .stages = 5},
     {.rows = 128, .columns = 256, .groups = 2, .stages = 4}}};

constexpr std::array<Conv2dPortableTile, 3> portable_tiles{{{128, 128}, {128, 64}, {64, 64}}};

/// Taps of an axis that reach one and the same phase, at most.
int64_t most_taps(int64_t filter, int64_t stride, int64_t dilation) {
  return ceil_div(filter, stride / std::gcd(stride, dilation));
}

/// The largest of a few alignments that divides a number of channels.
int alignment(int64_t channels, DType dtype) {
  const int whole = 16 / static_cast<int>(size_of(dtype));
  if (channels % whole == 0) return whole;
  return whole == 8 && channels % 4 == 0 ? 4 : 1;
}

}  // namespace

std::span<const Conv2dTile> conv2d_tiles(Conv2dKind kind) {
  return std::span(tiles).subspan(kind == Conv2dKind::wgrad ? 1 : 0);
}

bool fits_cluster(const Conv2dTile& t, int cluster_k) {
  const int own = (t.columns / cluster_k + 15) / 16 * 16;
  const int scratch = 4 * t.groups * 16 * 40 * 4;
  return t.stages * ((t.rows + t.columns) * 128 + 32) + (cluster_k - 1) * t.rows * own * 4 +
             scratch + 1040 <=
         227 * 1024;
}

std::span<const Conv2dPortableTile> conv2d_portable_tiles() { return portable_tiles; }

Conv2dProduct conv2d_product(const Conv2dProblem& p, Conv2dKind kind) {
  const int64_t taps = p.r * p.s;
  switch (kind) {
    case Conv2dKind::fprop:
      return {p.n * p.p * p.q, p.k, taps * p.c, taps * ceil_div(p.c, 64), 1};
    case Conv2dKind::dgrad: {
      const int64_t most =
          most_taps(p.r, p.stride.h, p.dilation.h) * most_taps(p.s, p.stride.w, p.dilation.w);
      return {p.n * ceil_div(p.h, p.stride.h) * ceil_div(p.w, p.stride.w), p.c, most * p.k,
              most * ceil_div(p.k, 64), p.stride.h * p.stride.w};
    }
    default: {
      const int64_t pixels = p.n * p.p * p.q;
      return {p.k, taps * p.c, pixels, ceil_div(pixels, 64), 1};
    }
  }
}

bool fits_tiles(const Conv2dProblem& p, Conv2dKind kind) {
  if (p.groups != 1 || p.r * p.s > device::most_conv2d_taps) return false;
  if (kind == Conv2dKind::dgrad && p.stride.h * p.stride.w > device::most_conv2d_phases)
    return false;
  if ((p.r - 1) * p.dilation.h > 255 || (p.s - 1) * p.dilation.w > 255) return false;
  const Conv2dProduct product = conv2d_product(p, kind);
  constexpr int64_t most = int64_t{1} << 30;
  return product.rows * product.phases <= most && product.columns <= most &&
         product.depth <= most && std::max({p.h, p.w, p.p, p.q}) < (1 << 19);
}

bool fits_warpgroups(const Conv2dProblem& p, Conv2dKind kind) {
  if (!fits_tiles(p, kind)) return false;
  if (p.c % 8 != 0 || (kind != Conv2dKind::fprop && p.k % 8 != 0)) return false;
  if (kind == Conv2dKind::wgrad && p.c % 64 != 0) return false;
  static const int aligned alignas(16) = 0;
  Im2colTensor walk = conv2d_walk(p, kind);
  walk.address = &aligned;
  return fits_im2col(walk);
}

double conv2d_time(const Conv2dProduct& product, const Conv2dPlan& plan, const Gpu& gpu) {
  const Conv2dForm& f = plan.form;
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
  // Pixels along the depth come in boxes of 64 rows, each with a wait of its own.
  const double boxes = f.kind == Conv2dKind::wgrad ? 190 + 40 * (f.tile.rows / 64) : 0;
  const double step = std::max({products / rate, lines, boxes});
  const double sums = f.tile.rows * f.tile.columns;
  const double end = sums * .12 + (f.cluster_k > 1 ? 5500 : 0);
  const double joined = plan.slices == 1 ? 0
                                         : gpu.launch / 2 + static_cast<double>(tiles) * sums * 8 *
                                                                plan.slices / gpu.memory_rate;
  return gpu.launch + waves * (steps * step + end) + joined;
}

namespace {

Conv2dPlan plan_warpgroups(const Conv2dProblem& p, const Conv2dWish& wish, const Gpu& gpu) {
  Conv2dPlan best;
  double least = 0;
  const Conv2dProduct product = conv2d_product(p, wish.kind);
  const auto consider = [&](const Conv2dPlan& plan) {
    const double time = conv2d_time(product, plan, gpu);
    if (best.path == Conv2dPath::tiles && time >= least) return;
    least = time;
    best = plan;
  };
  for (const Conv2dTile& tile : conv2d_tiles(wish.kind)) {
    const int64_t count = product.phases * ceil_div(product.rows, tile.rows) *
                          ceil_div(product.columns, tile.columns);
    Conv2dPlan plan{.path = Conv2dPath::tiles,
                    .form = {.kind = wish.kind,
                             .dtype = wish.dtype,
                             .tile = tile,
                             .odd = product.columns % 8 != 0,
                             .phases = product.phases > 1}};
    consider(plan);
    for (const int cluster_k : {2, 3, 4, 8}) {
      if (!fits_cluster(tile, cluster_k) || product.steps < 4 * cluster_k) continue;
      plan.form.cluster_k = cluster_k;
      consider(plan);
    }
    plan.form.cluster_k = 1;
    plan.slices =
        static_cast<int>(std::min<int64_t>(product.steps / 4, gpu.multiprocessors / count));
    plan.form.sliced = true;
    if (plan.slices > 1 && product.phases == 1) consider(plan);
  }
  return best;
}

/// Gradients of few channels as problems that warpgroups take, where that is worth more launches.
Conv2dPlan plan_few_channels(const Conv2dProblem& p, const Conv2dWish& wish, const Gpu& gpu) {
  constexpr double worth_copies = 1 << 25;  // multiply-adds
  constexpr int64_t least_filters = 32;  // the image of taps is then at most twice as large as dy
  const auto by = [&](const Conv2dProblem& other, Conv2dPath path) {
    Conv2dPlan plan;
    if (!fits_warpgroups(other, wish.kind)) return plan;
    plan = plan_warpgroups(other, wish, gpu);
    plan.path = path;
    return plan;
  };
  if (wish.kind == Conv2dKind::dgrad && wish.bare && p.c % 8 != 0 && p.products() >= worth_copies)
    return by(with_whole_channels(p), Conv2dPath::whole);
  // Single warps are faster where they load four channels at once.
  if (wish.kind == Conv2dKind::wgrad && p.k >= least_filters && p.c % 4 != 0)
    if (const auto taps = gathered_taps(p)) return by(taps->problem, Conv2dPath::taps);
  return {};
}

Conv2dPlan plan_single_warps(const Conv2dProblem& p, const Conv2dWish& wish, const Gpu& gpu) {
  const Conv2dProduct product = conv2d_product(p, wish.kind);
  const int64_t k = wish.kind == Conv2dKind::fprop ? p.c : p.k;  // which it does not gather
  Conv2dPlan plan{.path = Conv2dPath::tiles,
                  .form = {.kind = wish.kind,
                           .dtype = wish.dtype,
                           .warpgroup = false,
                           .align_c = wish.aligned ? alignment(p.c, wish.dtype) : 1,
                           .align_k = wish.aligned ? alignment(k, wish.dtype) : 1,
                           .tf32 = wish.dtype == f32 && wish.tf32}};
  // The largest tile that most of the product fills, of which there are enough.
  int64_t count = 0;
  const int most = wish.dtype == f64 ? 64 * 64 : wish.dtype == f32 ? 128 * 64 : 128 * 128;
  for (const auto& [rows, columns] : portable_tiles) {
    plan.form.tile = {rows, columns, 0, 0};
    count = product.phases * ceil_div(product.rows, rows) * ceil_div(product.columns, columns);
    const bool fills = product.columns > columns / 2 && product.rows > rows / 2;
    if (rows * columns <= most && fills && count >= gpu.multiprocessors) break;
  }
  // Too few tiles share their depth out, in slices that are worth adding up.
  const int64_t slices = std::min(2 * gpu.multiprocessors / count, product.depth / 512);
  plan.slices = static_cast<int>(std::clamp<int64_t>(slices, 1, 256));
  plan.form.sliced = plan.slices > 1;
  return plan;
}

}  // namespace

Conv2dPlan plan_conv2d(const Conv2dProblem& p, const Conv2dWish& wish, const Gpu& gpu) {
  const bool one_tap = p.r == 1 && p.s == 1 && p.stride == Extent2{1, 1} && p.groups == 1 &&
                       p.padding.top == 0 && p.padding.left == 0 && p.p == p.h && p.q == p.w;
  if (one_tap && wish.plain) return {.path = Conv2dPath::matmul, .form = {}};
  const bool short_floats = wish.dtype == f16 || wish.dtype == bf16;
  if (gpu.capability == 90 && short_floats && wish.aligned) {
    if (fits_warpgroups(p, wish.kind)) return plan_warpgroups(p, wish, gpu);
    const Conv2dPlan few = plan_few_channels(p, wish, gpu);
    if (few.path != Conv2dPath::direct) return few;
  }
  if (gpu.capability >= 80 && fits_tiles(p, wish.kind)) return plan_single_warps(p, wish, gpu);
  return {};
}

}  // namespace bs::cuda
