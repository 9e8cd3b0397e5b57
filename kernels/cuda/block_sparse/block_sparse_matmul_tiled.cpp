#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <bs/kernels/cuda/block_sparse/turned_operand.h>
#include <bs/kernels/cuda/block_sparse/work_counter.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/kernels/cuda/device/block_sparse/block_sparse_problem.cuh>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace bs::cuda {

namespace {

int size_in_bytes(DType dtype) { return static_cast<int>(size_of(dtype)); }

bool is_split(const TiledKernel& k) { return k.dtype == f32 && !k.tf32; }

BlockSparseTile tile_of(const TiledKernel& k) {
  return block_sparse_tile(size_in_bytes(k.dtype), k.block, is_split(k), k.cols);
}

int widest(const TiledKernel& k) {
  return widest_tile(size_in_bytes(k.dtype), k.block, is_split(k));
}

int reduced_side(const TiledKernel& k) { return std::min(k.block, device::reduced_side); }

const char* word(bool value) { return value ? "true" : "false"; }

bool aligned_to_16(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data()) % 16 == 0; }

/// Whether every step of tensor `n` over the loop is a multiple of `vector` elements.
template <int N>
bool steps_in(const StridedLoop<N>& loop, int n, int vector) {
  for (int axis = 0; axis < loop.rank; ++axis)
    if (loop.strides[n][axis] % vector != 0) return false;
  return true;
}

/// Whether lines of `length` elements, one after the other in memory, fall into whole pieces.
bool whole_pieces(const MatrixStrides& strides, bool by_rows, int64_t length, int vector) {
  return (by_rows ? strides.row : strides.col) % vector == 0 && length % vector == 0;
}

template <int N>
device::OperandLoop<N> operand_loop(const StridedLoop<N>& loop) {
  static_assert(Dims::max_rank == std::extent_v<decltype(device::OperandLoop<N>::shape)>);
  BS_CHECK(loop.numel() <= INT32_MAX,
           "block-sparse product: {} matrices are more than one launch "
           "can have",
           loop.numel());
  device::OperandLoop<N> out{};
  out.rank = loop.rank;
  for (int axis = 0; axis < loop.rank; ++axis) {
    out.shape[axis] = static_cast<unsigned>(loop.shape[axis]);
    for (int n = 0; n < N; ++n) out.strides[n][axis] = loop.strides[n][axis];
  }
  return out;
}

/// Whether blocks of 8 read each part of B, one a head for each of `lines` block lines of op(S), so
/// often that a copy with long lines pays. Of f64 what they read are lines of 64 bytes.
bool reads_often(const LayoutView& layout, int32_t lines, DType dtype) {
  return layout.block == 8 && dtype != f64 && layout.nnz >= int64_t{4} * layout.heads * lines;
}

device::DenseSteps steps_of(const MatrixStrides& strides) { return {strides.row, strides.col}; }

/// Tiles of `cols` columns that the blocks of all rows fill, if a tile has the rows of a block.
int64_t sdd_tiles(const Layout& layout, int cols) {
  const uint64_t key = uint64_t{1} << 61 | static_cast<uint64_t>(cols);
  return layout.derived<int64_t>(key, [&] {
    const LayoutView v = layout.view(Device::cpu());
    int64_t tiles = 0;
    for (int i = 0; i < v.heads * v.rows; ++i)
      tiles += ceil_div(int64_t{v.row_offsets[i + 1] - v.row_offsets[i]} * v.block, cols);
    return tiles;
  });
}

/// Columns of the tiles that are soonest done. `count` tells how many tiles of so many columns
/// there are, of one row of them for each block.
template <class Count>
int fitting_cols(TiledKernel k, int64_t cols, const Count& count, Device device) {
  const int64_t slots = 2 * device_properties(device).multiprocessors;
  const int64_t rows = ceil_div(k.block, tile_of(k).rows);
  k.cols = widest(k);
  while (k.cols > 64 &&
         (cols <= k.cols / 2 ||
          half_tiles_pay(rows * count(k.cols), rows * count(k.cols / 2), slots, is_split(k))))
    k.cols /= 2;
  return k.cols;
}

/// Tiles over the rows of a block and over `cols` columns.
device::TileGrid grid_of(const TiledKernel& k, int64_t cols) {
  const BlockSparseTile tile = tile_of(k);
  return {.row_tiles = static_cast<int>(ceil_div(k.block, tile.rows)),
          .col_tiles = static_cast<int>(ceil_div(cols, tile.cols)),
          .c_aligned = false};
}

/// How `tiles` of dsd are cut.
TileSplitting splitting_of(const TiledKernel& k, int64_t tiles, Device device) {
  const BlockSparseTile tile = tile_of(k);
  const int64_t each = ceil_div(tiles, device_properties(device).multiprocessors);
  const TilePace pace = tile_pace(tile, size_in_bytes(k.dtype), k.block, is_split(k), k.tf32,
                                  std::max(each, int64_t{1}));
  const int64_t sums = int64_t{tile.rows} * tile.cols * (k.dtype == f64 ? 8 : 4);
  SplitCosts costs = split_costs(pace.step, sums);
  // Where tiles differ little, those left on a multiprocessor have it for themselves.
  costs.worth = 65;
  return {.of_step = std::max(1, tile.depth / k.block),
          .cols = tile.cols,
          .factors = k.dtype == f64   ? 0
                     : k.tf32         ? 2
                     : k.dtype == f32 ? 1
                                      : 3,
          .resident = pace.resident,
          .costs = costs};
}

template <class Arguments>
void launch(const TiledKernel& k, const BlockSparseEpilogue* epilogue, int64_t ctas,
            const Arguments& arguments, Stream stream) {
  static auto* const family = new jit::KernelFamily<TiledKernel>;
  BS_CHECK(ctas <= INT32_MAX, "{}: {} tiles are more than one launch can have",
           k.sampled ? "sdd" : "dsd", ctas);
  if (ctas == 0) return;
  const BlockSparseTile tile = tile_of(k);
  const jit::Kernel& kernel = family->get(k, stream.device(), [&] {
    return tiled_source(k, epilogue ? &epilogue->expression : nullptr);
  });
  jit::launch(kernel,
              {.grid = dim3(static_cast<unsigned>(ctas)),
               .block = dim3(static_cast<unsigned>(tile.threads())),
               .shared_bytes = tile.shared_bytes(size_in_bytes(k.dtype))},
              stream, arguments);
}

}  // namespace

jit::Source tiled_source(const TiledKernel& k, const GemmEpilogue* epilogue) {
  const BlockSparseTile t = tile_of(k);
  const char* const op = k.sampled ? "sdd" : "dsd";
  const std::string name =
      format("{}_{}_b{}_{}{}_n{}{}{}{}", op, k.tf32 ? "tf32" : to_string(k.dtype), k.block,
             k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n", k.cols, k.aligned ? "" : "_elements",
             k.cut ? "_cut" : "", epilogue ? "_epilogue" : "");
  const std::string product =
      format("TileProduct<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}{}>", device_type_name(k.dtype),
             t.rows, t.cols, t.depth, t.stages, t.warp_rows, t.warp_cols, word(k.a_along_k),
             word(k.b_along_k), word(k.aligned), k.tf32 ? ", TileMultiplyTf32" : "");
  std::string code =
      "#include <bs/kernels/cuda/device/block_sparse/block_sparse_matmul.cuh>\n\n"
      "using namespace bs::cuda::device;\n";
  if (epilogue) code += epilogue_text(*epilogue, k.dtype, k.c_by_columns);
  code += format("using Product = {};\n", product);
  code += format("static_assert(Product::threads == {} && Product::shared_bytes == {});\n\n",
                 t.threads(), t.shared_bytes(size_in_bytes(k.dtype)));
  const std::string of_epilogue = epilogue ? ", Epilogue" : k.cut ? ", NoEpilogue" : "";
  const std::string options = k.cut ? format("{}, {}, true", of_epilogue, word(!k.c_by_columns))
                                    : of_epilogue + (k.c_by_columns ? ", false" : "");
  code += format(
      "extern \"C\" __global__ void __launch_bounds__(Product::threads, 2)\n"
      "    {}(const __grid_constant__ {} arguments) {\n"
      "  {}_tile<Product, {}{}>(arguments);\n}\n",
      name, k.sampled ? "SddArguments" : "DsdArguments", op, k.block, options);
  return {name, code, device_headers()};
}

std::vector<TiledKernel> all_tiled_kernels() {
  std::vector<TiledKernel> all;
  for (const bool sampled : {false, true})
    for (const DType dtype : {f16, bf16, f32, f64})
      for (const int block : {8, 16, 32, 64, 128})
        for (const bool a : {false, true})
          for (const bool b : {false, true})
            for (const bool tf32 : {false, true}) {
              if (tf32 && dtype != f32) continue;
              TiledKernel k{sampled, dtype, block, a, b, tf32};
              const auto add = [&] {
                for (const bool cut : {false, true}) {
                  k.cut = cut;
                  if (!sampled || !cut) all.push_back(k);
                }
              };
              for (k.cols = widest(k); k.cols >= 64; k.cols /= 2) add();
              k.cols = 64;
              k.aligned = false;
              add();
            }
  return all;
}

void tiled_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
               Stream stream) {
  visit_floating("dsd", b.dtype(), [](auto) {});  // kernels can be emitted for these alone
  const int32_t depth = p.transposed ? p.layout.rows : p.layout.cols;
  if (reads_often(p.layout, depth, b.dtype()) && short_lines(p, b)) {
    const auto q = with_long_lines(p, b, stream);
    return tiled_dsd(values, q.b, c, q.problem, stream);
  }
  const int vector = 16 / size_in_bytes(b.dtype());
  const bool by_rows = p.c.col == 1;
  TiledKernel k{.sampled = false,
                .dtype = b.dtype(),
                .block = p.layout.block,
                .a_along_k = !p.transposed,
                .b_along_k = p.b.col != 1,
                .tf32 = p.tf32 && b.dtype() == f32,
                .c_by_columns = p.epilogue && !by_rows,
                .epilogue = epilogue_key(p.epilogue)};
  k.aligned = aligned_to_16(values) && steps_in(p.batch, 0, vector) && steps_in(p.sum, 0, vector) &&
              aligned_to_16(b) && steps_in(p.batch, 1, vector) && steps_in(p.sum, 1, vector) &&
              whole_pieces(p.b, !k.b_along_k, k.b_along_k ? p.k() : p.n, vector);
  const int64_t lines = p.batch.numel() * p.block_rows();
  if (k.aligned)
    k.cols = fitting_cols(
        k, p.n, [&](int cols) { return lines * ceil_div(p.n, cols); }, stream.device());
  device::TileGrid grid = grid_of(k, p.n);
  grid.c_aligned = aligned_to_16(c) && steps_in(p.batch, 2, vector) &&
                   whole_pieces(p.c, by_rows, by_rows ? p.n : vector, vector);
  const LineOrder& order = line_order_of(*p.pattern, p.transposed, stream.device());
  const BlockSparseTile tile = tile_of(k);
  const DevicePieces& split = split_tiles(
      p, order, grid, splitting_of(k, lines * grid.row_tiles * grid.col_tiles, stream.device()),
      stream);
  const int64_t ctas = split.count > 0
                           ? split.count
                           : p.batch.numel() * grid.col_tiles * p.block_rows() * grid.row_tiles;
  const EpilogueLaunch epilogue(p.epilogue, k.c_by_columns,
                                {p.batch.numel(), int64_t{p.block_rows()} * p.layout.block, p.n},
                                reduced_side(k), reduced_side(k), stream);
  device::DsdArguments arguments{.values = values.data(),
                                 .b = b.data(),
                                 .c = c.data(),
                                 .order = order_of(p.layout, p.transposed),
                                 .lines = order.on_device.data<int32_t>(),
                                 .b_steps = steps_of(p.b),
                                 .c_steps = steps_of(p.c),
                                 .n = p.n,
                                 .batch = operand_loop(p.batch),
                                 .sum = operand_loop(p.sum),
                                 .grid = grid,
                                 .split = {},
                                 .next = nullptr,
                                 .epilogue = epilogue.arguments()};
  std::optional<WorkCounter> counter;
  Tensor partials;
  if (split.count > 0) {
    k.cut = true;
    counter.emplace(stream, 1 + split.slots);
    partials = Tensor::empty({split.slots, tile.rows, tile.cols}, b.dtype() == f64 ? f64 : f32,
                             stream.device());
    arguments.split = {split.pieces, partials.data(), counter->get() + 1};
    arguments.next = counter->get();
  }
  launch(k, p.epilogue, ctas, arguments, stream);
  epilogue.reduce();
}

void tiled_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream) {
  visit_floating("sdd", a.dtype(), [](auto) {});
  if (reads_often(p.layout, p.layout.cols, b.dtype()) && short_lines(p, b)) {
    const auto q = with_long_lines(p, b, stream);
    return tiled_sdd(a, q.b, values, q.problem, stream);
  }
  BS_CHECK(p.k <= INT32_MAX, "sdd: a depth of {} is more than a kernel can count", p.k);
  const int vector = 16 / size_in_bytes(a.dtype());
  const int64_t height = int64_t{p.layout.rows} * p.layout.block;
  const int64_t width = int64_t{p.layout.cols} * p.layout.block;
  TiledKernel k{.sampled = true,
                .dtype = a.dtype(),
                .block = p.layout.block,
                .a_along_k = p.a.col == 1,
                .b_along_k = p.b.col != 1,
                .tf32 = p.tf32 && a.dtype() == f32,
                .epilogue = epilogue_key(p.epilogue)};
  k.aligned = aligned_to_16(a) && steps_in(p.batch, 0, vector) && steps_in(p.sum, 0, vector) &&
              p.a_head % vector == 0 &&
              whole_pieces(p.a, k.a_along_k, k.a_along_k ? p.k : height, vector) &&
              aligned_to_16(b) && steps_in(p.batch, 1, vector) && steps_in(p.sum, 1, vector) &&
              p.b_head % vector == 0 &&
              whole_pieces(p.b, !k.b_along_k, k.b_along_k ? p.k : width, vector);
  const int64_t lines = p.batch.numel() * p.layout.heads * p.layout.rows;
  const int64_t longest = int64_t{p.longest_row} * p.layout.block;
  if (k.aligned) {
    const auto count = [&](int cols) { return p.batch.numel() * sdd_tiles(*p.pattern, cols); };
    k.cols = fitting_cols(k, longest, count, stream.device());
  }
  device::TileGrid grid = grid_of(k, longest);
  grid.c_aligned = aligned_to_16(values) && steps_in(p.batch, 2, vector);
  const int64_t tiles = lines * grid.row_tiles * grid.col_tiles;
  const EpilogueLaunch epilogue(
      p.epilogue, false, {p.batch.numel(), int64_t{p.layout.nnz} * p.layout.block, p.layout.block},
      reduced_side(k), reduced_side(k), stream);
  launch(k, p.epilogue, tiles,
         device::SddArguments{.a = a.data(),
                              .b = b.data(),
                              .values = values.data(),
                              .order = order_of(p.layout, false),
                              .a_steps = steps_of(p.a),
                              .b_steps = steps_of(p.b),
                              .k = static_cast<int>(p.k),
                              .a_head = p.a_head,
                              .b_head = p.b_head,
                              .batch = operand_loop(p.batch),
                              .sum = operand_loop(p.sum),
                              .grid = grid,
                              .epilogue = epilogue.arguments()},
         stream);
  epilogue.reduce(p.layout);
}

}  // namespace bs::cuda
