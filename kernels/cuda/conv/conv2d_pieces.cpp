#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/kernels/cuda/conv/conv2d_pieces.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <utility>

namespace bs::cuda {

namespace {

/// A layout's blocks, as places of the filter and channels see them.
class Blocks {
 public:
  Blocks(const Conv2dProblem& p, const Layout& layout)
      : view_(layout.view(Device::cpu())),
        side(layout.block()),
        channels_(static_cast<int>(p.c) / side) {}

  /// Calls f(number of the block, place of the filter, first channel) for the blocks of a row.
  template <class F>
  void row(int row, const F& f) const {
    for (int i = view_.row_offsets[row]; i < view_.row_offsets[row + 1]; ++i)
      f(i, view_.col_of[i] / channels_, view_.col_of[i] % channels_ * side);
  }
  /// Calls f(number of the block, first filter) for those of a place of the filter and channels.
  template <class F>
  void column(int tap, int channel, const F& f) const {
    const int col = tap * channels_ + channel / side;
    for (int i = view_.col_offsets[col]; i < view_.col_offsets[col + 1]; ++i)
      f(view_.transposed[i], view_.transposed_row[i] * side);
  }

 private:
  LayoutView view_;

 public:
  const int side;

 private:
  int channels_;
};

/// Column by column of tiles, the places of the filter in their order.
void list_result(Conv2dPieces& out, const Blocks& blocks, const device::Conv2dGrid& g, int first) {
  blocks.row(first / blocks.side, [&](int number, int tap, int channel) {
    for (int c = 0; c < blocks.side; c += 64)
      out.pieces.push_back(
          {g.taps[tap], channel + c, c, number * blocks.side + first % blocks.side});
  });
}

void list_input_gradient(Conv2dPieces& out, const Blocks& blocks, const device::Conv2dGrid& g,
                         int phase, int first) {
  for (int t = g.first_tap[phase]; t < g.first_tap[phase + 1]; ++t)
    blocks.column(g.taps[t].number, first, [&](int number, int filter) {
      for (int k = 0; k < blocks.side; k += 64)
        out.pieces.push_back(
            {g.taps[t], filter + k, first % blocks.side, number * blocks.side + k});
    });
}

/// Tiles of filters from `first` on, the last one filled up with nothing.
void list_filter_gradient(Conv2dPieces& out, const Blocks& blocks, const device::Conv2dGrid& g,
                          int first, int width) {
  blocks.row(first / blocks.side, [&](int number, int tap, int channel) {
    for (int c = 0; c < blocks.side; c += 64)
      out.pieces.push_back(
          {g.taps[tap], channel + c, first, number * blocks.side + first % blocks.side});
  });
  while (out.pieces.size() % static_cast<size_t>(width) != 0)
    out.pieces.push_back({{0, 0, 0}, g.channels, first, -1});
}

}  // namespace

Conv2dPieces conv2d_pieces(const Conv2dProblem& p, Conv2dKind kind, const Layout& layout,
                           const Conv2dTile& tile) {
  const device::Conv2dGrid g = conv2d_grid(p, kind);
  const Blocks blocks(p, layout);
  Conv2dPieces out;
  if (kind == Conv2dKind::wgrad) {
    const int width = tile.columns / 64;
    for (int first = 0; first < p.k; first += tile.rows)
      list_filter_gradient(out, blocks, g, first, width);
    out.tiles = static_cast<int>(out.pieces.size()) / width;
    return out;
  }
  const auto columns = static_cast<int>(kind == Conv2dKind::fprop ? p.k : p.c);
  out.offsets.push_back(0);
  for (int phase = 0; phase < g.phases; ++phase)
    for (int first = 0; first < columns; first += tile.columns) {
      if (kind == Conv2dKind::fprop) {
        list_result(out, blocks, g, first);
      } else {
        list_input_gradient(out, blocks, g, phase, first);
      }
      out.offsets.push_back(static_cast<int32_t>(out.pieces.size()));
    }
  out.tiles = static_cast<int>(out.offsets.size()) - 1;
  return out;
}

Conv2dProduct conv2d_product(const Conv2dProblem& p, Conv2dKind kind, const Conv2dPieces& pieces,
                             const Conv2dTile& tile) {
  Conv2dProduct product = conv2d_product(p, kind);
  if (kind == Conv2dKind::wgrad) {
    product.rows = tile.rows;
    product.columns = int64_t{pieces.tiles} * tile.columns;
  } else {
    product.steps =
        ceil_div(static_cast<int64_t>(pieces.pieces.size()) * product.phases, pieces.tiles);
  }
  return product;
}

BlockSparseConv2dPlan plan_block_sparse_conv2d(const Conv2dProblem& p, Conv2dKind kind, DType dtype,
                                               const Layout& layout, const Gpu& gpu) {
  BlockSparseConv2dPlan best;
  const bool short_floats = dtype == f16 || dtype == bf16;
  if (gpu.capability != 90 || !short_floats || layout.block() < 64 || layout.nnz() == 0 ||
      layout.nnz() * layout.block() >= (int64_t{1} << 30) || !fits_warpgroups(p, kind))
    return best;
  double least = 0;
  for (const Conv2dTile& tile : conv2d_tiles(kind)) {
    const int side = kind == Conv2dKind::wgrad ? tile.rows : tile.columns;
    if (side > layout.block() || layout.block() % side != 0) continue;
    Conv2dPlan plan{.path = Conv2dPath::tiles,
                    .form = {.kind = kind, .dtype = dtype, .tile = tile, .blocks = true}};
    Conv2dPieces pieces = conv2d_pieces(p, kind, layout, tile);
    const Conv2dProduct product = conv2d_product(p, kind, pieces, tile);
    plan.form.phases = product.phases > 1;
    if (kind == Conv2dKind::wgrad) {
      const int64_t most = std::min<int64_t>(product.steps / 4, gpu.multiprocessors / pieces.tiles);
      plan.slices = static_cast<int>(std::max<int64_t>(most, 1));
      plan.form.sliced = plan.slices > 1;
    }
    const double time = conv2d_time(product, plan, gpu);
    if (best.plan.path == Conv2dPath::tiles && time >= least) continue;
    least = time;
    best = {plan, std::move(pieces)};
  }
  return best;
}

}  // namespace bs::cuda
