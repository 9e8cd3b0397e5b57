#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/kernels/cuda/conv/conv2d_pieces.h>
#include <bs/tests/support/kernel_sweep.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

using namespace bs;
using namespace bs::cuda;
using namespace bs::test;

namespace {

constexpr Conv2dKind kinds[] = {Conv2dKind::fprop, Conv2dKind::dgrad, Conv2dKind::wgrad};

Conv2dProblem problem(int64_t c, int64_t k, int64_t filter, int64_t stride) {
  Conv2dProblem p;
  p.n = 2, p.h = 7, p.w = 8, p.c = c, p.k = k, p.r = filter, p.s = filter;
  p.stride = {stride, stride}, p.dilation = {1, 1}, p.padding = {1, 1, 1, 1};
  p.p = (p.h + 2 - filter) / stride + 1;
  p.q = (p.w + 2 - filter) / stride + 1;
  return p;
}

/// (element of the blocks, filter, channel, place of the filter) that a kernel multiplies.
using Product = std::array<int64_t, 4>;

std::vector<Product> products_of(const Layout& layout, const Conv2dProblem& p) {
  const LayoutView v = layout.view(Device::cpu());
  const int64_t b = layout.block(), across = p.c / b;
  std::vector<Product> all;
  for (int64_t i = 0; i < v.nnz; ++i)
    for (int64_t e = 0; e < b * b; ++e)
      all.push_back({i * b * b + e, v.row_of[i] * b + e / b, v.col_of[i] % across * b + e % b,
                     v.col_of[i] / across});
  return all;
}

/// What the kernels read of a box, or write, by their lists.
std::vector<Product> listed_products(const Conv2dPieces& lists, const Conv2dProblem& p,
                                     Conv2dKind kind, int64_t b, const Conv2dTile& tile) {
  std::vector<Product> all;
  const auto add = [&](int64_t row, int64_t column, int64_t filter, int64_t channel,
                       const device::Conv2dPiece& piece) {
    all.push_back({row * b + column, filter, channel, piece.at.number});
  };
  if (kind == Conv2dKind::wgrad) {
    CHECK(lists.pieces.size() == static_cast<size_t>(lists.tiles * tile.columns / 64));
    for (const device::Conv2dPiece& piece : lists.pieces) {
      if (piece.y < 0) CHECK(piece.channel >= p.c);
      if (piece.y < 0) continue;
      for (int64_t i = 0; i < tile.rows; ++i)
        for (int64_t j = 0; j < 64; ++j)
          add(piece.y + i, piece.channel % b + j, piece.x + i, piece.channel + j, piece);
    }
    return all;
  }
  const int64_t width = (kind == Conv2dKind::fprop ? p.k : p.c) / tile.columns;
  for (int64_t list = 0; list < lists.tiles; ++list)
    for (int32_t at = lists.offsets[static_cast<size_t>(list)];
         at < lists.offsets[static_cast<size_t>(list) + 1]; ++at) {
      const device::Conv2dPiece& piece = lists.pieces[static_cast<size_t>(at)];
      const int64_t first = list % width * tile.columns;
      for (int64_t i = 0; i < tile.columns; ++i)
        for (int64_t j = 0; j < 64; ++j) {
          if (kind == Conv2dKind::fprop) {
            add(piece.y + i, piece.x + j, first + i, piece.channel + j, piece);
          } else {
            add(piece.y + j, piece.x + i, piece.channel + j, first + i, piece);
          }
        }
    }
  return all;
}

std::vector<Conv2dForm> forms() {
  std::vector<Conv2dForm> all;
  for (const Conv2dKind kind : kinds)
    for (const Conv2dTile& tile : conv2d_tiles(kind)) {
      const bool gradient = kind == Conv2dKind::wgrad;
      if (128 % (gradient ? tile.rows : tile.columns) != 0) continue;
      for (const bool other : {false, true})
        all.push_back({.kind = kind,
                       .dtype = other ? f16 : bf16,
                       .tile = tile,
                       .sliced = gradient && other,
                       .phases = kind == Conv2dKind::dgrad && other,
                       .blocks = true});
    }
  return all;
}

}  // namespace

TEST_CASE("block_sparse_conv2d kernels: every element of every block once, in its place") {
  for (const int block : {64, 128})
    for (const int64_t filter : {1, 3})
      for (const int64_t stride : {1, 2})
        for (const double density : {0.3, 1.0}) {
          const Conv2dProblem p = problem(2 * block, 3 * block, filter, stride);
          const Mask mask =
              Mask::random(1, 3, static_cast<int>(2 * filter * filter), block, density, 5);
          const LayoutPtr layout = mask.layout();
          std::vector<Product> expected = products_of(*layout, p);
          std::ranges::sort(expected);
          for (const Conv2dKind kind : kinds)
            for (const Conv2dTile& tile : conv2d_tiles(kind)) {
              const int side = kind == Conv2dKind::wgrad ? tile.rows : tile.columns;
              if (block % side != 0) continue;
              const Conv2dPieces lists = conv2d_pieces(p, kind, *layout, tile);
              std::vector<Product> listed = listed_products(lists, p, kind, block, tile);
              std::ranges::sort(listed);
              CHECK((listed == expected));
            }
        }
}

TEST_CASE("block_sparse_conv2d kernels: a gradient's phases read the places that reach them") {
  const Conv2dProblem p = problem(64, 128, 3, 2);
  const LayoutPtr layout = Mask(1, 2, 9, 64, 1).layout();
  const Conv2dTile tile = conv2d_tiles(Conv2dKind::dgrad)[1];
  const Conv2dPieces lists = conv2d_pieces(p, Conv2dKind::dgrad, *layout, tile);
  const device::Conv2dGrid g = conv2d_grid(p, Conv2dKind::dgrad);
  REQUIRE(lists.tiles == g.phases);
  for (int phase = 0; phase < g.phases; ++phase) {
    const int taps = g.first_tap[phase + 1] - g.first_tap[phase];
    CHECK(lists.offsets[static_cast<size_t>(phase) + 1] -
              lists.offsets[static_cast<size_t>(phase)] ==
          2 * taps);
  }
}

TEST_CASE("block_sparse_conv2d's plan: kernels of its own for large blocks of 16 bits") {
  const Gpu hopper;
  const Conv2dProblem p = problem(256, 256, 3, 1);
  const auto path = [&](int block, DType dtype, const Gpu& gpu) {
    const int side = 256 / block;
    const LayoutPtr layout = Mask::random(1, side, 9 * side, block, 0.5, 1).layout();
    return plan_block_sparse_conv2d(p, Conv2dKind::fprop, dtype, *layout, gpu).plan.path;
  };
  CHECK(path(64, bf16, hopper) == Conv2dPath::tiles);
  CHECK(path(128, f16, hopper) == Conv2dPath::tiles);
  CHECK(path(32, bf16, hopper) == Conv2dPath::direct);
  CHECK(path(64, f32, hopper) == Conv2dPath::direct);
  Gpu ampere;
  ampere.capability = 80;
  CHECK(path(64, bf16, ampere) == Conv2dPath::direct);
  const LayoutPtr none = Mask(1, 4, 36, 64).layout();
  for (const Conv2dKind kind : kinds)
    CHECK(plan_block_sparse_conv2d(p, kind, bf16, *none, hopper).plan.path == Conv2dPath::direct);
  // Few tiles of the gradient share much depth out.
  const Conv2dProblem deep = [] {
    Conv2dProblem more = problem(256, 256, 3, 1);
    more.n = 32;
    return more;
  }();
  const LayoutPtr some = Mask::random(1, 4, 36, 64, 0.25, 1).layout();
  CHECK(plan_block_sparse_conv2d(deep, Conv2dKind::wgrad, bf16, *some, hopper).plan.slices > 2);
}

TEST_CASE("block_sparse_conv2d kernels compile without spills") {
  const auto source = [](const Conv2dForm& form) {
    return conv2d_source(conv2d_kernel(form, GemmEpilogue(epilogue::accumulator())));
  };
  const auto with_bias = [](const Conv2dForm& form) {
    using namespace epilogue;
    return conv2d_source(
        conv2d_kernel(form, GemmEpilogue(accumulator() + row("bias", element_of(form.dtype)))));
  };
  check_kernels(forms(), source, 3, {90});
  std::vector<Conv2dForm> results = forms();
  std::erase_if(results, [](const Conv2dForm& f) { return f.kind != Conv2dKind::fprop; });
  check_kernels(results, with_bias, 3, {90});
  std::vector<Conv2dForm> sliced = forms();
  std::erase_if(sliced, [](const Conv2dForm& f) { return !f.sliced; });
  const auto join = [](const Conv2dForm& form) {
    return conv2d_join_source(conv2d_kernel(form, GemmEpilogue(epilogue::accumulator())));
  };
  check_kernels(sliced, join, 3, {90});
}
