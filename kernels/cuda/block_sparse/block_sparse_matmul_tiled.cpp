#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse/item_launch.h>
#include <bs/kernels/cuda/block_sparse/operand_vectors.h>
#include <bs/kernels/cuda/jit/emit.h>
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

device::BlockOrder order_of(const LayoutView& v, bool transposed) {
  if (transposed) return {v.col_offsets, v.transposed, v.transposed_row, v.heads, v.cols};
  return {v.row_offsets, nullptr, v.col_of, v.heads, v.rows};
}

}  // namespace

KernelLaunch launch_of(const TiledKernel& k) {
  const BlockSparseTile tile = tile_of(k);
  const int side = std::min(k.block, device::reduced_side);
  return {.threads = tile.threads(),
          .shared_bytes = tile.shared_bytes(size_in_bytes(k.dtype)),
          .ctas = 2,
          .sums = {tile.rows, tile.cols},
          .sums_dtype = k.dtype == f64 ? f64 : f32,
          .counters = 1,
          .arrivals = 1,
          .persistent = false,
          .reduced_rows = side,
          .reduced_columns = side};
}

jit::Source source_of(const TiledKernel& k, const GemmEpilogue* epilogue) {
  const BlockSparseTile t = tile_of(k);
  std::string options = format("Product, {}", k.block);
  if (epilogue || k.cut) options += epilogue ? ", Epilogue" : ", NoEpilogue";
  if (k.cut) options += format(", {}, true", !k.c_by_columns);
  if (!k.cut && k.c_by_columns) options += ", false";
  const std::string call = format("  {}_tile<{}>(arguments{});\n", k.sampled ? "sdd" : "dsd",
                                  options, k.repeats ? ", tile" : "");
  const std::string repeated =
      "  if (*arguments.mark != arguments.marked) return;\n"
      "  for (unsigned tile = blockIdx.x; tile < arguments.tiles; tile += gridDim.x) {\n" +
      call + "  __syncthreads();\n  }\n";
  return source_of(
      k, launch_of(k),
      {.header = "block_sparse_matmul.cuh",
       .ahead = "using namespace bs::cuda::device;\n",
       .types = format("using Product = TileProduct<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}{}>;\n",
                       device_type_name(k.dtype), t.rows, t.cols, t.depth, t.stages, t.warp_rows,
                       t.warp_cols, k.a_along_k, k.b_along_k, k.aligned,
                       k.tf32 ? ", TileMultiplyTf32" : ""),
       .type = "Product",
       .factors = k.tf32 ? "tf32" : to_string(k.dtype),
       .variant = format("_n{}{}{}", k.cols, k.aligned ? "" : "_elements",
                         k.cut       ? "_cut"
                         : k.repeats ? "_again"
                                     : ""),
       .parameter = k.sampled ? "SddArguments arguments" : "DsdArguments arguments",
       .body = k.repeats ? repeated : call},
      epilogue);
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
              TiledKernel k{{sampled, dtype, block, a, b}, tf32};
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
  TiledKernel k{kernel_of(p, b.dtype())};
  k.c_by_columns = p.epilogue && !by_rows;
  k.tf32 = p.tf32 && b.dtype() == f32;
  k.cols = work.plan.cols;
  k.aligned = work.plan.vectors;
  k.cut = work.split.count > 0;
  k.repeats = repeat.mark != nullptr;
  device::TileGrid grid = grid_of(k, p.n);
  grid.c_aligned = aligned_to_16(c) && steps_in(p.batch, 2, vector) &&
                   whole_vectors(p.c, by_rows, by_rows ? p.n : vector, vector);
  const Kept<DeviceLines> lines = device_lines(*p.pattern, p.transposed, stream);
  const int64_t tiles = p.batch.numel() * grid.col_tiles * p.block_rows() * grid.row_tiles;
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
                                 .tiles = static_cast<unsigned>(tiles),
                                 .epilogue = {}};
  const int64_t most = k.repeats ? device_properties(stream.device()).multiprocessors : tiles;
  launch_product(k, arguments, std::min(tiles, most), work.split, p, stream);
}

void tiled_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
               const SddProblem& p, Stream stream) {
  BS_CHECK(p.k <= INT32_MAX, "sdd: a depth of {} is more than a kernel can count", p.k);
  const int vector = vector_of(a.dtype());
  TiledKernel k{kernel_of(p, a.dtype())};
  k.tf32 = p.tf32 && a.dtype() == f32;
  k.cols = work.plan.cols;
  k.aligned = work.plan.vectors;
  device::TileGrid grid = grid_of(k, int64_t{p.longest_row} * p.layout.block);
  grid.c_aligned = aligned_to_16(values) && steps_in(p.batch, 2, vector);
  const int64_t lines = p.batch.numel() * p.layout.heads * p.layout.rows;
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
                                 .epilogue = {}};
  launch_product(k, arguments, lines * grid.row_tiles * grid.col_tiles, {}, p, stream);
}

}  // namespace bs::cuda
