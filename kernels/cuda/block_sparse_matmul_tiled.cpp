#include <bs/kernels/cuda/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/device_headers.h>
#include <bs/kernels/cuda/emit.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/block_sparse_problem.cuh>

#include <cstdint>

namespace bs::cuda {

namespace {

int size_in_bytes(DType dtype) { return static_cast<int>(size_of(dtype)); }

BlockSparseTile tile_of(const TiledKernel& k) {
  return block_sparse_tile(size_in_bytes(k.dtype), k.block);
}

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

device::BlockOrder order_of(const LayoutView& v, bool transposed) {
  if (transposed) return {v.col_offsets, v.transposed, v.transposed_row, v.heads, v.cols};
  return {v.row_offsets, nullptr, v.col_of, v.heads, v.rows};
}

device::DenseSteps steps_of(const MatrixStrides& strides) { return {strides.row, strides.col}; }

/// Tiles over the rows of a block and over `cols` columns.
device::TileGrid grid_of(const TiledKernel& k, int64_t cols) {
  const BlockSparseTile tile = tile_of(k);
  return {.row_tiles = static_cast<int>(ceil_div(k.block, tile.rows)),
          .col_tiles = static_cast<int>(ceil_div(cols, tile.cols)),
          .a_aligned = false,
          .b_aligned = false,
          .c_aligned = false};
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
               .shared_bytes = tile.shared_bytes(size_in_bytes(k.dtype), k.a_along_k, k.b_along_k)},
              stream, arguments);
}

}  // namespace

jit::Source tiled_source(const TiledKernel& k, const GemmEpilogue* epilogue) {
  const BlockSparseTile t = tile_of(k);
  const char* const op = k.sampled ? "sdd" : "dsd";
  const std::string name =
      format("{}_{}_b{}_{}{}{}", op, k.tf32 ? "tf32" : to_string(k.dtype), k.block,
             k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n", epilogue ? "_epilogue" : "");
  const std::string product =
      format("TileProduct<{}, {}, {}, {}, {}, {}, {}, {}, {}{}>", device_type_name(k.dtype), t.rows,
             t.cols, t.depth, t.stages, t.warp_rows, t.warp_cols, word(k.a_along_k),
             word(k.b_along_k), k.tf32 ? ", MmaTf32" : "");
  std::string code =
      "#include <bs/kernels/cuda/device/block_sparse_matmul.cuh>\n\n"
      "using namespace bs::cuda::device;\n";
  if (epilogue) code += epilogue_text(*epilogue, k.dtype, k.c_by_columns);
  code += format("using Product = {};\n", product);
  code += format("static_assert(Product::threads == {} && Product::shared_bytes == {});\n\n",
                 t.threads(), t.shared_bytes(size_in_bytes(k.dtype), k.a_along_k, k.b_along_k));
  code += format(
      "extern \"C\" __global__ void __launch_bounds__(Product::threads, 1)\n"
      "    {}(const __grid_constant__ {} arguments) {\n"
      "  {}_tile<Product, {}{}>(arguments);\n}\n",
      name, k.sampled ? "SddArguments" : "DsdArguments", op, k.block, epilogue ? ", Epilogue" : "");
  return {name, code, device_headers()};
}

std::vector<TiledKernel> all_tiled_kernels() {
  std::vector<TiledKernel> all;
  for (const bool sampled : {false, true})
    for (const DType dtype : {f16, bf16, f32, f64})
      for (const int block : {8, 16, 32, 64, 128})
        for (const bool a : {false, true})
          for (const bool b : {false, true}) {
            all.push_back({sampled, dtype, block, a, b});
            if (dtype == f32) all.push_back({sampled, dtype, block, a, b, true});
          }
  return all;
}

void tiled_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
               Stream stream) {
  visit_floating("dsd", b.dtype(), [](auto) {});  // kernels can be emitted for these alone
  const int vector = 16 / size_in_bytes(b.dtype());
  const bool by_rows = p.c.col == 1;
  const TiledKernel k{.sampled = false,
                      .dtype = b.dtype(),
                      .block = p.layout.block,
                      .a_along_k = !p.transposed,
                      .b_along_k = p.b.col != 1,
                      .tf32 = p.tf32 && b.dtype() == f32,
                      .c_by_columns = p.epilogue && !by_rows,
                      .epilogue = epilogue_key(p.epilogue)};
  device::TileGrid grid = grid_of(k, p.n);
  grid.a_aligned =
      aligned_to_16(values) && steps_in(p.batch, 0, vector) && steps_in(p.sum, 0, vector);
  grid.b_aligned = aligned_to_16(b) && steps_in(p.batch, 1, vector) && steps_in(p.sum, 1, vector) &&
                   whole_pieces(p.b, !k.b_along_k, k.b_along_k ? p.k() : p.n, vector);
  grid.c_aligned = aligned_to_16(c) && steps_in(p.batch, 2, vector) &&
                   whole_pieces(p.c, by_rows, by_rows ? p.n : vector, vector);
  const int64_t tiles = p.batch.numel() * grid.col_tiles * p.block_rows() * grid.row_tiles;
  launch(k, p.epilogue, tiles,
         device::DsdArguments{.values = values.data(),
                              .b = b.data(),
                              .c = c.data(),
                              .order = order_of(p.layout, p.transposed),
                              .b_steps = steps_of(p.b),
                              .c_steps = steps_of(p.c),
                              .n = p.n,
                              .batch = operand_loop(p.batch),
                              .sum = operand_loop(p.sum),
                              .grid = grid,
                              .epilogue = epilogue_arguments(p.epilogue, k.c_by_columns)},
         stream);
}

void tiled_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
               Stream stream) {
  visit_floating("sdd", a.dtype(), [](auto) {});
  const int vector = 16 / size_in_bytes(a.dtype());
  const int64_t height = int64_t{p.layout.rows} * p.layout.block;
  const int64_t width = int64_t{p.layout.cols} * p.layout.block;
  const TiledKernel k{.sampled = true,
                      .dtype = a.dtype(),
                      .block = p.layout.block,
                      .a_along_k = p.a.col == 1,
                      .b_along_k = p.b.col != 1,
                      .tf32 = p.tf32 && a.dtype() == f32,
                      .epilogue = epilogue_key(p.epilogue)};
  device::TileGrid grid = grid_of(k, int64_t{p.longest_row} * p.layout.block);
  grid.a_aligned = aligned_to_16(a) && steps_in(p.batch, 0, vector) && steps_in(p.sum, 0, vector) &&
                   p.a_head % vector == 0 &&
                   whole_pieces(p.a, k.a_along_k, k.a_along_k ? p.k : height, vector);
  grid.b_aligned = aligned_to_16(b) && steps_in(p.batch, 1, vector) && steps_in(p.sum, 1, vector) &&
                   p.b_head % vector == 0 &&
                   whole_pieces(p.b, !k.b_along_k, k.b_along_k ? p.k : width, vector);
  grid.c_aligned = aligned_to_16(values) && steps_in(p.batch, 2, vector);
  const int64_t tiles =
      p.batch.numel() * p.layout.heads * p.layout.rows * grid.row_tiles * grid.col_tiles;
  launch(k, p.epilogue, tiles,
         device::SddArguments{.a = a.data(),
                              .b = b.data(),
                              .values = values.data(),
                              .order = order_of(p.layout, false),
                              .a_steps = steps_of(p.a),
                              .b_steps = steps_of(p.b),
                              .k = p.k,
                              .a_head = p.a_head,
                              .b_head = p.b_head,
                              .batch = operand_loop(p.batch),
                              .sum = operand_loop(p.sum),
                              .grid = grid,
                              .epilogue = epilogue_arguments(p.epilogue, false)},
         stream);
}

}  // namespace bs::cuda
