#include <bs/kernels/cuda/conv/conv2d_few.h>
#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

#include <set>
#include <vector>

using namespace bs;
using namespace bs::cuda;
using namespace bs::test;

namespace {

struct Options {
  int64_t stride = 1, padding = 0, dilation = 1;
};

Conv2dProblem problem(int64_t n, int64_t size, int64_t c, int64_t k, int64_t filter, Options o) {
  Conv2dProblem p;
  p.n = n, p.h = size, p.w = size + 1, p.c = c, p.k = k, p.r = filter, p.s = filter;
  p.stride = {o.stride, o.stride}, p.dilation = {o.dilation, o.dilation};
  p.padding = {o.padding, o.padding, o.padding, o.padding};
  const auto extent = [&](int64_t x) {
    return (x + 2 * o.padding - o.dilation * (filter - 1) - 1) / o.stride + 1;
  };
  p.p = extent(p.h), p.q = extent(p.w);
  return p;
}

std::vector<Conv2dProblem> geometries() {
  std::vector<Conv2dProblem> all;
  for (const int64_t filter : {1, 2, 3, 5})
    for (const int64_t stride : {1, 2, 3, 4})
      for (const int64_t padding : {0, 1, 2})
        for (const int64_t dilation : {1, 2, 3})
          if (dilation * (filter - 1) < 7 + 2 * padding)
            all.push_back(problem(2, 7, 1, 1, filter, {stride, padding, dilation}));
  return all;
}

/// Pairs (pixel of the one image, pixel of the other, tap) that a convolution multiplies.
using Products = std::multiset<std::array<int64_t, 3>>;

int64_t at(int64_t n, int64_t h, int64_t w, int64_t height, int64_t width) {
  return (n * height + h) * width + w;
}

Products plain_products(const Conv2dProblem& p) {
  Products all;
  for (int64_t n = 0; n < p.n; ++n)
    for (int64_t i = 0; i < p.p * p.q; ++i)
      for (int64_t tap = 0; tap < p.r * p.s; ++tap) {
        const int64_t h = i / p.q * p.stride.h + tap / p.s * p.dilation.h - p.padding.top;
        const int64_t w = i % p.q * p.stride.w + tap % p.s * p.dilation.w - p.padding.left;
        if (h >= 0 && h < p.h && w >= 0 && w < p.w)
          all.insert({at(n, i / p.q, i % p.q, p.p, p.q), at(n, h, w, p.h, p.w), tap});
      }
  return all;
}

/// Those of the kernels' walk, which reads zeros outside of the image.
Products walked_products(const Conv2dProblem& p, Conv2dKind kind) {
  const device::Conv2dGrid g = conv2d_grid(p, kind);
  const Im2colTensor walk = conv2d_walk(p, kind);
  const int64_t width = walk.dims[1], height = walk.dims[2];
  Products all;
  for (int phase = 0; phase < g.phases; ++phase)
    for (int64_t row = 0; row < int64_t{g.images} * g.height * g.width; ++row) {
      const int64_t j = row % g.width, i = row / g.width % g.height, n = row / g.width / g.height;
      const int64_t y = i * g.phase_h + phase / g.phase_w, x = j * g.phase_w + phase % g.phase_w;
      if (y >= g.result_height || x >= g.result_width) continue;
      for (int t = g.first_tap[phase]; t < g.first_tap[phase + 1]; ++t) {
        const int64_t h = walk.first[1] + i * walk.step[1] + g.taps[t].h;
        const int64_t w = walk.first[0] + j * walk.step[0] + g.taps[t].w;
        if (h < 0 || w < 0 || h >= height || w >= width) continue;
        const int64_t result = at(n, y, x, g.result_height, g.result_width);
        const int64_t read = at(n, h, w, height, width);
        if (kind == Conv2dKind::dgrad) {
          all.insert({read, result, g.taps[t].number});
        } else {
          all.insert({result, read, g.taps[t].number});
        }
      }
    }
  return all;
}

constexpr Conv2dKind kinds[] = {Conv2dKind::fprop, Conv2dKind::dgrad, Conv2dKind::wgrad};

std::vector<Conv2dForm> warpgroup_forms() {
  std::vector<Conv2dForm> forms;
  for (const Conv2dKind kind : kinds)
    for (const Conv2dTile& tile : conv2d_tiles(kind)) {
      const Conv2dForm form{.kind = kind, .tile = tile};
      const auto add = [&](auto... changes) {
        Conv2dForm f = form;
        (changes(f), ...);
        forms.push_back(f);
      };
      add();
      add([](Conv2dForm& f) { f.dtype = f16; });
      add([](Conv2dForm& f) { f.sliced = true; });
      for (const int cluster_k : {2, 3, 4, 8})
        if (fits_cluster(tile, cluster_k)) add([&](Conv2dForm& f) { f.cluster_k = cluster_k; });
      if (kind == Conv2dKind::dgrad) add([](Conv2dForm& f) { f.phases = true; });
      if (kind == Conv2dKind::fprop) add([](Conv2dForm& f) { f.odd = true; });
    }
  return forms;
}

std::vector<Conv2dForm> portable_forms() {
  std::vector<Conv2dForm> forms;
  for (const Conv2dKind kind : kinds)
    for (const DType dtype : {f16, bf16, f32, f64})
      for (const auto& [rows, columns] : conv2d_portable_tiles())
        for (const int align_c : {1, 4, 8})
          for (const int align_k : {1, 4, 8})
            for (const bool sliced : {false, true}) {
              if (std::max(align_c, align_k) * static_cast<int>(size_of(dtype)) > 16) continue;
              if (rows * columns > (dtype == f64 ? 64 * 64 : dtype == f32 ? 128 * 64 : 128 * 128))
                continue;
              forms.push_back({.kind = kind,
                               .dtype = dtype,
                               .warpgroup = false,
                               .tile = {rows, columns, 0, 0},
                               .sliced = sliced,
                               .align_c = align_c,
                               .align_k = align_k,
                               .tf32 = dtype == f32 && sliced});
            }
  return forms;
}

jit::Source plain_source(const Conv2dForm& form) {
  return conv2d_source(conv2d_kernel(form, GemmEpilogue(epilogue::accumulator())));
}
jit::Source join_source(const Conv2dForm& form) {
  return conv2d_join_source(conv2d_kernel(form, GemmEpilogue(epilogue::accumulator())));
}
jit::Source long_source(const Conv2dForm& form) {
  using namespace epilogue;
  const Element e = element_of(form.dtype);
  return conv2d_source(conv2d_kernel(
      form, GemmEpilogue(silu(accumulator() + row("bias", e) + tensor("residual", e)))));
}

}  // namespace

TEST_CASE("conv2d kernels: pixels and taps are those of the convolution") {
  for (const Conv2dProblem& p : geometries()) {
    CAPTURE(p.r);
    CAPTURE(p.stride.h);
    CAPTURE(p.padding.top);
    CAPTURE(p.dilation.h);
    const Products plain = plain_products(p);
    for (const Conv2dKind kind : {Conv2dKind::fprop, Conv2dKind::dgrad, Conv2dKind::wgrad})
      CHECK(walked_products(p, kind) == plain);
  }
}

TEST_CASE("conv2d kernels: tiles of warpgroups compile without spills") {
  check_kernels(warpgroup_forms(), plain_source, 89, {90});
  std::vector<Conv2dForm> forms = warpgroup_forms();
  std::erase_if(forms, [](const Conv2dForm& f) { return f.kind == Conv2dKind::wgrad; });
  check_kernels(forms, long_source, 157, {90});
}

TEST_CASE("conv2d kernels: tiles of single warps compile without spills") {
  check_kernels(portable_forms(), plain_source, 337);
  check_kernels(portable_forms(), long_source, 197);
}

TEST_CASE("conv2d kernels: those that add up slices compile without spills") {
  std::vector<Conv2dForm> forms = warpgroup_forms();
  std::erase_if(forms, [](const Conv2dForm& f) { return !f.sliced; });
  check_kernels(forms, join_source, 53, {90});
  forms = portable_forms();
  std::erase_if(forms, [](const Conv2dForm& f) { return !f.sliced; });
  check_kernels(forms, join_source, 241, {80});
}

TEST_CASE("conv2d's taps as channels: each product of a filter's gradient once, in its place") {
  int split = 0, whole = 0, none = 0;
  for (const int64_t filter : {1, 2, 3, 5, 7})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t padding : {0, 1, 3})
        for (const int64_t dilation : {1, 2, 3})
          for (const int64_t c : {1, 3, 4, 24}) {
            if (dilation * (filter - 1) >= 7 + 2 * padding) continue;
            const Conv2dProblem p = problem(2, 7, c, 8, filter, {stride, padding, dilation});
            const auto by = gathered_taps(p);
            if (!by) {
              ++none;
              continue;
            }
            const Conv2dProblem& g = by->problem;
            (g.s == 1 ? whole : split) += 1;
            CHECK(g.h == p.p);
            CHECK((g.p == p.p && g.q == p.q));
            // What place [r, s] and channel i of the gradient multiply pixel (h, w) of dy by.
            for (int64_t r = 0; r < p.r; ++r)
              for (int64_t s = 0; s < p.s; ++s)
                for (int64_t i = 0; i < c; ++i) {
                  const int64_t channel = (r * by->group + s % by->group) * c + i;
                  const GatheredTap tap = by->taps.at(static_cast<size_t>(channel));
                  REQUIRE(tap.c == i);
                  for (const int64_t w : {int64_t{0}, p.q - 1}) {
                    const int64_t column = w + s / by->group * g.dilation.w;
                    REQUIRE(column < g.w);
                    CHECK(column * by->step_w + tap.w == w * stride + s * dilation - padding);
                    CHECK(w * by->step_h + tap.h == w * stride + r * dilation - padding);
                  }
                }
            for (size_t i = static_cast<size_t>(p.r * by->group * c); i < by->taps.size(); ++i)
              CHECK(by->taps[i].c == -1);
          }
  CHECK(split > 20);
  CHECK(whole > 50);
  CHECK(none > 20);
}

TEST_CASE("conv2d's plan") {
  const Gpu hopper;
  Gpu ampere;
  ampere.capability = 80;
  const Conv2dProblem deep = problem(32, 14, 256, 256, 3, {.padding = 1});
  const Conv2dProblem flat = problem(32, 14, 256, 256, 1, {});
  const Conv2dProblem few = problem(32, 224, 3, 64, 7, {.stride = 2, .padding = 3});
  const auto plan = [](const Conv2dProblem& p, Conv2dWish wish, const Gpu& gpu) {
    return plan_conv2d(p, wish, gpu);
  };
  constexpr Conv2dKind fprop = Conv2dKind::fprop, dgrad = Conv2dKind::dgrad,
                       wgrad = Conv2dKind::wgrad;
  CHECK(plan(deep, {fprop, bf16}, hopper).path == Conv2dPath::tiles);
  CHECK(plan(deep, {fprop, bf16}, hopper).form.warpgroup);
  CHECK(!plan(deep, {fprop, bf16}, ampere).form.warpgroup);
  CHECK(!plan(deep, {fprop, f32}, hopper).form.warpgroup);
  CHECK(plan(flat, {fprop, f32}, ampere).path == Conv2dPath::matmul);
  CHECK(plan(flat, {fprop, bf16, false}, hopper).path == Conv2dPath::tiles);
  CHECK(plan(few, {fprop, bf16}, hopper).form.align_c == 1);
  // Its gradients become those of other problems, where there are warpgroups.
  CHECK(plan(few, {wgrad, f16}, hopper).path == Conv2dPath::taps);
  CHECK(plan(few, {wgrad, f16}, hopper).form.sliced);
  CHECK(plan(few, {dgrad, f16}, hopper).path == Conv2dPath::whole);
  CHECK(plan(few, {dgrad, f16}, hopper).form.phases);
  CHECK(plan(few, {.kind = dgrad, .dtype = f16, .bare = false}, hopper).path == Conv2dPath::tiles);
  CHECK(plan(few, {wgrad, f16}, ampere).path == Conv2dPath::tiles);
  CHECK(plan(few, {wgrad, f16}, ampere).form.align_k == 8);
  CHECK(plan(few, {dgrad, f32}, hopper).path == Conv2dPath::tiles);
  Conv2dProblem grouped = deep;
  grouped.groups = 4;
  CHECK(plan(grouped, {fprop, bf16}, hopper).path == Conv2dPath::direct);
  // The gradient of filters has few tiles of much depth: it goes in slices.
  const Conv2dProblem wide = problem(32, 56, 64, 64, 3, {.padding = 1});
  CHECK(plan(wide, {wgrad, bf16}, hopper).form.sliced);
  CHECK(plan(wide, {wgrad, bf16}, hopper).slices > 20);
  CHECK(plan(wide, {fprop, bf16}, hopper).slices == 1);
  CHECK(plan(wide, {wgrad, f32}, ampere).slices > 20);
  const Conv2dProblem strided = problem(8, 28, 128, 128, 3, {.stride = 2, .padding = 1});
  CHECK(plan(strided, {dgrad, f16}, hopper).form.phases);
  CHECK(conv2d_product(strided, dgrad).phases == 4);
  // What does not begin at multiples of 16 bytes is beyond the copy engine.
  const Conv2dProblem odd = problem(8, 28, 128, 7, 3, {});
  CHECK(plan(odd, {fprop, f16}, hopper).form.odd);
  CHECK(!plan(odd, {wgrad, f16}, hopper).form.warpgroup);
  CHECK(!plan(deep, {.kind = fprop, .dtype = bf16, .aligned = false}, hopper).form.warpgroup);
  CHECK(conv2d_product(strided, dgrad).depth == 4 * 128);
}
