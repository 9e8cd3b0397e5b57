#include <bs/kernels/cuda/block_sparse/gemm_blocks.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_operands.h>
#include <bs/kernels/cuda/gemm/gemm_tables.h>
#include <bs/kernels/cuda/gemm/matmul_description.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>

namespace bs::cuda {

namespace {

constexpr int line = 64;  // elements that a box is wide

/// As matmul's own kernel for 16 bits, but for what is stored.
GemmDescription describe(const GemmBlocksKernel& k) {
  GemmDescription d =
      describe_large_matmul(k.dtype, k.a, k.b, GemmEpilogue(epilogue::accumulator()));
  d.swizzle = Swizzle::identity8;
  d.epilogue.set_d(d.d.element);
  return d;
}

/// All values in lines of 128 bytes, or of a row of a larger block. Boxes have what 16 rows of the
/// product have of a block.
DenseMap map_of(const Tensor& values, int block) {
  const int width = std::max(block, line);
  return {values, width, values.numel() / width, width, line, 16 * std::min(block, line) / line};
}

}  // namespace

jit::Source gemm_blocks_source(const GemmBlocksKernel& k) {
  const GemmDescription d = describe(k);
  return {blocks_name(d, k.block), to_blocks_source(d, k.block), device_headers()};
}

std::vector<GemmBlocksKernel> all_gemm_blocks_kernels() {
  std::vector<GemmBlocksKernel> all;
  for (const DType dtype : {f16, bf16})
    for (const int block : {16, 32, 64, 128})
      for (const MatrixLayout a : {MatrixLayout::row_major, MatrixLayout::column_major})
        for (const MatrixLayout b : {MatrixLayout::row_major, MatrixLayout::column_major})
          all.push_back({dtype, a, b, block});
  return all;
}

void gemm_blocks(const Tensor& a, const Tensor& b, const Tensor& values, const int32_t* numbers,
                 int block, Stream stream) {
  static auto* const family = new jit::KernelFamily<GemmBlocksKernel>;
  const DenseMap map = map_of(values, block);
  const GemmBlocksKernel k{a.dtype(), layout_of(a), layout_of(b), block};
  const GemmDescription d = describe(k);
  // D itself is nowhere.
  const std::vector<SeenGemm> seen{{d,
                                    {.m = a.size(0),
                                     .n = b.size(1),
                                     .k = a.size(1),
                                     .a = a.unsqueeze(0),
                                     .b = b.unsqueeze(0),
                                     .operands = {Tensor()},
                                     .reductions = {}}}};
  const int64_t tiles = seen.front().tiles(d);
  BS_CHECK(fits_int(tiles), "sdd: {} tiles are more than one launch can have", tiles);
  const auto ctas = static_cast<int>(
      std::min<int64_t>(tiles, device_properties(stream.device()).multiprocessors));
  GemmMemory memory(d, seen, tiles, 1, ctas, false);
  device::WarpgroupGemmParams params{};
  memory.allocate(stream);
  memory.describe(params, true);
  params.d = map.encode("sdd");
  params.blocks = numbers;
  params.gemm.tiles = static_cast<int>(tiles);
  params.gemm.slices = 1;
  const jit::Kernel& kernel =
      family->get(k, stream.device(), [&] { return gemm_blocks_source(k); });
  jit::launch(kernel,
              {.grid = dim3(static_cast<unsigned>(ctas)),
               .block = dim3(static_cast<unsigned>(d.tile.threads())),
               .shared_bytes = shared_bytes(d)},
              stream, params);
}

}  // namespace bs::cuda
