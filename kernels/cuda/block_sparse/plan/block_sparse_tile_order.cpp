#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace bs::cuda {

namespace {

/// More tiles, or products summed, than these are not worth a list: of so many tiles even the
/// longest is little of what a multiprocessor has to do.
constexpr int64_t most_listed_tiles = 8192, most_listed_products = 1024;

/// Tiles of dsd, of which long ones are cut over the depth, or begin before others.
struct TileSplit {
  DevicePieces pieces;
  Milestone made;
};

}  // namespace

device::BlockOrder order_of(const LayoutView& v, bool transposed) {
  if (transposed) return {v.col_offsets, v.transposed, v.transposed_row, v.heads, v.cols};
  return {v.row_offsets, nullptr, v.col_of, v.heads, v.rows};
}

// Long lines had better begin early: at the end some CTAs would have them, and others nothing.
const LineOrder& line_order_of(const Layout& layout, bool transposed, Device device) {
  const uint64_t key =
      static_cast<uint64_t>(transposed) << 8 | static_cast<uint64_t>(device.index());
  const auto& kept = layout.derived<LineOrder>(key, [&] {
    const device::BlockOrder order = order_of(layout.view(Device::cpu()), transposed);
    std::vector<int32_t> blocks(static_cast<size_t>(order.lines)), lines(blocks.size());
    for (int i = 0; i < order.heads * order.lines; ++i)
      blocks[static_cast<size_t>(i % order.lines)] += order.offsets[i + 1] - order.offsets[i];
    std::iota(lines.begin(), lines.end(), 0);
    std::stable_sort(lines.begin(), lines.end(), [&](int32_t a, int32_t b) {
      return blocks[static_cast<size_t>(a)] > blocks[static_cast<size_t>(b)];
    });
    Tensor on_device = upload(lines, device);
    return LineOrder{std::move(lines), std::move(on_device), Milestone(current_stream(device))};
  });
  kept.made.wait(current_stream(device));
  return kept;
}

std::vector<int32_t> tile_steps(const DsdProblem& p, const std::vector<int32_t>& lines, int of_step,
                                const device::TileGrid& grid) {
  const device::BlockOrder blocks = order_of(p.pattern->view(Device::cpu()), p.transposed);
  std::vector<int32_t> all;
  for (int64_t item = 0; item < p.batch.numel(); ++item) {
    std::vector<int32_t> lengths;
    for (const int32_t line : lines) {
      int64_t steps = 0;
      for (int64_t term = 0; term < p.sum.numel(); ++term) {
        const int64_t head = p.batch.offset(3, item) + p.sum.offset(2, term);
        const int32_t* const at = blocks.offsets + head * blocks.lines + line;
        steps += ceil_div(at[1] - at[0], of_step);
      }
      lengths.insert(lengths.end(), static_cast<size_t>(grid.row_tiles),
                     static_cast<int32_t>(steps));
    }
    for (int tile = 0; tile < grid.col_tiles; ++tile)
      all.insert(all.end(), lengths.begin(), lengths.end());
  }
  return all;
}

const DevicePieces& split_tiles(const DsdProblem& p, const LineOrder& order,
                                const device::TileGrid& grid, const TileSplitting& how,
                                Stream stream) {
  static const DevicePieces whole;
  const int64_t batch = p.batch.numel(), terms = p.sum.numel();
  const int64_t tiles = batch * grid.col_tiles * p.block_rows() * grid.row_tiles;
  if (tiles > most_listed_tiles || terms > most_listed_products) return whole;
  const uint64_t key =
      static_cast<uint64_t>(stream.device().index()) | static_cast<uint64_t>(p.transposed) << 6 |
      static_cast<uint64_t>(p.sums_heads()) << 7 | static_cast<uint64_t>(how.of_step) << 8 |
      static_cast<uint64_t>(grid.row_tiles) << 16 | static_cast<uint64_t>(grid.col_tiles) << 20 |
      static_cast<uint64_t>(batch) << 34 | static_cast<uint64_t>(terms) << 48 |
      static_cast<uint64_t>(how.cols / 64) << 59 | static_cast<uint64_t>(how.factors) << 62;
  const auto& kept = p.pattern->derived<TileSplit>(key, [&] {
    const int workers = how.resident * device_properties(stream.device()).multiprocessors;
    const WorkPieces work =
        split_in_order(tile_steps(p, order.lines, how.of_step, grid), workers, how.costs);
    return TileSplit{DevicePieces(work, stream.device()), Milestone(stream)};
  });
  kept.made.wait(stream);
  return kept.pieces;
}

}  // namespace bs::cuda
