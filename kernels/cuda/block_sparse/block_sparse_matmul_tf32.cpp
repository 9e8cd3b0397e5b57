#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/block_sparse/item_launch.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_sdd_operands.h>
#include <bs/kernels/cuda/jit/warpgroup_mma.h>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_problem.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

constexpr int depth = 32;  // of a stage

bool gathers(const Tf32Kernel& k) { return k.sampled && tf32_gathers(k.block); }

Tf32Tile tile_of(const Tf32Kernel& k) {
  return gathers(k) ? tf32_gathered_tile(k.split) : tf32_tile(k.block, k.split, k.large);
}

}  // namespace

KernelLaunch launch_of(const Tf32Kernel& k) {
  const Tf32Tile tile = tile_of(k);
  return {.threads = Tf32Tile::threads,
          .shared_bytes = tile.shared_bytes(),
          .sums = {tile.n, tile.columns()},
          .arrivals = 2,
          .turned = true,
          .reduced_rows = device::tf32_reduced_side,
          .reduced_columns = tile.n / tile.rows};
}

jit::Source source_of(const Tf32Kernel& k, const GemmEpilogue* epilogue) {
  const Tf32Tile tile = tile_of(k);
  const std::string config = format(
      "struct Config {\n  using Mma = ::Mma;\n"
      "  using Epilogue = bs::cuda::device::{};\n  static constexpr int staged = {};\n"
      "  static constexpr int block = {}, n = {}, wide = {}, stages = {};\n"
      "  static constexpr bool split = {}, c_by_columns = {};\n"
      "  static constexpr bool gathered = {}, apart = {};\n"
      "  static constexpr int side = {}, rows = {};\n{}"
      "  static constexpr bool narrow_along_k = {}, wide_along_k = {};\n};\n"
      "using Kernel = bs::cuda::device::WarpgroupTf32{}<Config>;\n",
      epilogue ? "Epilogue" : "NoEpilogue", k.staged, k.block, tile.n, tile.wide, tile.stages,
      k.split, k.c_by_columns, gathers(k), tile.apart, std::min(k.block, depth), tile.rows,
      k.sampled ? "" : format("  static constexpr bool gathered_rows = {};\n", k.gathered_rows),
      k.a_along_k, k.b_along_k,
      gathers(k)  ? "Gathered"
      : k.sampled ? "Sdd"
                  : "Dsd");
  return source_of(
      k, launch_of(k),
      {.header = gathers(k)  ? "warpgroup_tf32_gathered.cuh"
                 : k.sampled ? "warpgroup_tf32_sdd.cuh"
                             : "warpgroup_tf32_dsd.cuh",
       .ahead = warpgroup_mma_tf32(tile.n / tile.rows),
       .types = config,
       .type = "Kernel",
       .factors = k.split ? "wgmma_f32" : "wgmma_tf32",
       .variant = format("{}_n{}{}{}", k.c_by_columns ? "_t" : "", tile.columns(),
                         tile.rows == 4 ? "_quads" : "", k.gathered_rows ? "_gathered" : ""),
       .parameter =
           format("bs::cuda::device::WarpgroupTf32{}Params params", k.sampled ? "Sdd" : "Dsd"),
       .body = "  Kernel::run(params);\n"},
      epilogue);
}

std::vector<Tf32Kernel> all_tf32_kernels(bool epilogues) {
  std::vector<Tf32Kernel> all;
  for (const int block : {16, 32, 64, 128})
    for (const bool split : {false, true})
      for (const bool a : {false, true})
        for (const bool b : {false, true}) {
          if (!epilogues || !tf32_gathers(block)) all.push_back({{true, f32, block, a, b}, split});
          for (const bool c : {false, true})
            for (const bool large : {false, true})
              for (const bool gathered : {false, true})
                if (block >= 32 && (!large || (block == 32 && !split)) &&
                    (!gathered || block == 32))
                  all.push_back({{false, f32, block, a, b, c}, split, large, gathered});
        }
  return all;
}

void tf32_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
              const DsdProblem& p, Stream stream) {
  const int block = p.layout.block;
  const Kept<DeviceStrips> strips = device_strips(*p.pattern, work.plan.strips, stream);
  const Tensor* const aside = staged_aside(p.epilogue);
  const Tf32Kernel k{kernel_of(p, f32), !p.tf32, work.plan.large, strips->gathered, aside ? 2 : 1};
  const Tf32Tile tile = tile_of(k);
  const int lines = k.a_along_k ? tile.n / tile.rows : depth;  // of a box
  DenseMap value_map(values, k.a_along_k ? block : depth, values.numel() / block, block, depth,
                     lines);
  if (!k.split) value_map.tensor.element = TensorMapElement::tf32;
  if (!k.a_along_k && block > depth) value_map.add(block / depth, depth, tile.n / depth);
  device::WarpgroupTf32DsdParams params{};
  const int64_t items =
      describe_dsd(b, p, work, *strips, value_map,
                   {.depth = depth, .slabs = std::max(1, block / tile.n)}, params);
  params.result = c.data<float>();
  if (aside) params.beside = aside->data<float>();
  params.result_step = k.c_by_columns ? p.c.col : p.c.row;
  params.result_batch = int64_t{p.block_rows()} * block * p.n;
  params.whole_quads = p.n % 4 == 0;
  launch_product(k, params, items, work.split, p, stream);
}

void tf32_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
              const SddProblem& p, Stream stream) {
  const int block = p.layout.block;
  const Tensor* const aside = staged_aside(p.epilogue);
  Tf32Kernel k{kernel_of(p, f32), !p.tf32};
  k.staged = aside ? 2 : 1;
  const Tf32Tile tile = tile_of(k);
  const bool gathered = gathers(k);
  device::WarpgroupTf32SddParams params{};
  const DescribedSdd described = describe_sdd(a, b, p, work,
                                              {.depth = depth,
                                               .rows = gathered ? block : tile.n,
                                               .cols = block,
                                               .gathered = gathered,
                                               .tf32 = !k.split,
                                               .slabs = gathered ? 1 : block / tile.n},
                                              params, stream);
  params.result = values.data<float>();
  if (aside) params.beside = aside->data<float>();
  launch_product(k, params, described.items, work.split, p, stream);
}

}  // namespace bs::cuda
