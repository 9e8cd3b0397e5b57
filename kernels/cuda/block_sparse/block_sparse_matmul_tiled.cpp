#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse/item_launch.h>
#include <bs/kernels/cuda/block_sparse/operand_pieces.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/block_sparse/block_sparse_problem.cuh>

#include <algorithm>
#include <cstdint>
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

device::DenseSteps steps_of(const MatrixStrides& strides) { return {strides.row, strides.col}; }

/// Tiles over the rows of a block and over `cols` columns.
device::TileGrid grid_of(const TiledKernel& k, int64_t cols) {
  const BlockSparseTile tile = tile_of(k);
  return {.row_tiles = static_cast<int>(ceil_div(k.block, tile.rows)),
          .col_tiles = static_cast<int>(ceil_div(cols, tile.cols)),
          .c_aligned = false};
}

ItemLaunch launch_of(const TiledKernel& k, int64_t ctas) {
  BS_CHECK(ctas <= INT32_MAX, "{}: {} tiles are more than one launch can have",
           k.sampled ? "sdd" : "dsd", ctas);
  const BlockSparseTile tile = tile_of(k);
  return {.threads = tile.threads(),
          .shared_bytes = tile.shared_bytes(size_in_bytes(k.dtype)),
          .items = ctas,
          .sums = {tile.rows, tile.cols},
          .sums_dtype = k.dtype == f64 ? f64 : f32,
          .counters = 1,
          .arrivals = 1,
          .persistent = false};
}

device::BlockOrder order_of(const LayoutView& v, bool transposed) {
  if (transposed) return {v.col_offsets, v.transposed, v.transposed_row, v.heads, v.cols};
  return {v.row_offsets, nullptr, v.col_of, v.heads, v.rows};
}

}  // namespace

jit::Source tiled_source(const TiledKernel& k, const GemmEpilogue* epilogue) {
  const BlockSparseTile t = tile_of(k);
  const char* const op = k.sampled ? "sdd" : "dsd";
  const std::string name =
      format("{}_{}_b{}_{}{}_n{}{}{}{}", op, k.tf32 ? "tf32" : to_string(k.dtype), k.block,
             k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n", k.cols, k.aligned ? "" : "_elements",
             k.cut       ? "_cut"
             : k.repeats ? "_again"
                         : "",
             epilogue ? "_epilogue" : "");
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
      "    {}(const __grid_constant__ {} arguments) {\n",
      name, k.sampled ? "SddArguments" : "DsdArguments");
  if (k.repeats)
    code +=
        "  if (*arguments.mark != arguments.marked) return;\n"
        "  for (unsigned tile = blockIdx.x; tile < arguments.tiles; tile += gridDim.x) {\n";
  code += format("  {}_tile<Product, {}{}>(arguments{});\n", op, k.block, options,
                 k.repeats ? ", tile" : "");
  code += k.repeats ? "  __syncthreads();\n  }\n}\n" : "}\n";
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
                k.cut = false;
                k.repeats = true;
                if (!sampled && dtype != f64) all.push_back(k);
                k.repeats = false;
              };
              for (k.cols = widest(k); k.cols >= 64; k.cols /= 2) add();
              k.cols = 64;
              k.aligned = false;
              add();
            }
  return all;
}

void tiled_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
               const DsdProblem& p, Stream stream, const RepeatMark& repeat) {
  const int vector = vector_of(b.dtype());
  const bool by_rows = p.c.col == 1;
  const TiledKernel k{.sampled = false,
                      .dtype = b.dtype(),
                      .block = p.layout.block,
                      .a_along_k = !p.transposed,
                      .b_along_k = p.b.col != 1,
                      .tf32 = p.tf32 && b.dtype() == f32,
                      .cols = work.plan.cols,
                      .aligned = work.plan.vectors,
                      .c_by_columns = p.epilogue && !by_rows,
                      .cut = work.split.count > 0,
                      .repeats = repeat.mark != nullptr,
                      .epilogue = epilogue_key(p.epilogue)};
  device::TileGrid grid = grid_of(k, p.n);
  grid.c_aligned = aligned_to_16(c) && steps_in(p.batch, 2, vector) &&
                   whole_pieces(p.c, by_rows, by_rows ? p.n : vector, vector);
  const Kept<DeviceLines> lines = device_lines(*p.pattern, p.transposed, stream);
  const EpilogueLaunch epilogue(p.epilogue, k.c_by_columns,
                                {p.batch.numel(), int64_t{p.block_rows()} * p.layout.block, p.n},
                                reduced_side(k), reduced_side(k), stream);
  device::DsdArguments arguments{.values = values.data(),
                                 .b = b.data(),
                                 .c = c.data(),
                                 .order = order_of(p.layout, p.transposed),
                                 .lines = lines->lines.data<int32_t>(),
                                 .b_steps = steps_of(p.b),
                                 .c_steps = steps_of(p.c),
                                 .n = p.n,
                                 .batch = operand_loop(p.batch),
                                 .sum = operand_loop(p.sum),
                                 .grid = grid,
                                 .split = {},
                                 .next = nullptr,
                                 .mark = repeat.mark,
                                 .marked = repeat.marked,
                                 .tiles = 0,
                                 .epilogue = epilogue.arguments()};
  const int64_t tiles = p.batch.numel() * grid.col_tiles * p.block_rows() * grid.row_tiles;
  ItemLaunch launch = launch_of(k, tiles);
  arguments.tiles = static_cast<unsigned>(tiles);
  if (k.repeats)
    launch.items = std::min<int64_t>(tiles, device_properties(stream.device()).multiprocessors);
  launch_items(k, arguments, launch, work.split, p.epilogue, stream, tiled_source);
  epilogue.reduce();
}

void tiled_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
               const SddProblem& p, Stream stream) {
  BS_CHECK(p.k <= INT32_MAX, "sdd: a depth of {} is more than a kernel can count", p.k);
  const int vector = vector_of(a.dtype());
  const TiledKernel k{.sampled = true,
                      .dtype = a.dtype(),
                      .block = p.layout.block,
                      .a_along_k = p.a.col == 1,
                      .b_along_k = p.b.col != 1,
                      .tf32 = p.tf32 && a.dtype() == f32,
                      .cols = work.plan.cols,
                      .aligned = work.plan.vectors,
                      .epilogue = epilogue_key(p.epilogue)};
  device::TileGrid grid = grid_of(k, int64_t{p.longest_row} * p.layout.block);
  grid.c_aligned = aligned_to_16(values) && steps_in(p.batch, 2, vector);
  const int64_t lines = p.batch.numel() * p.layout.heads * p.layout.rows;
  const EpilogueLaunch epilogue(
      p.epilogue, false, {p.batch.numel(), int64_t{p.layout.nnz} * p.layout.block, p.layout.block},
      reduced_side(k), reduced_side(k), stream);
  device::SddArguments arguments{.a = a.data(),
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
                                 .epilogue = epilogue.arguments()};
  launch_items(k, arguments, launch_of(k, lines * grid.row_tiles * grid.col_tiles), {}, p.epilogue,
               stream, tiled_source);
  epilogue.reduce(p.layout);
}

}  // namespace bs::cuda
