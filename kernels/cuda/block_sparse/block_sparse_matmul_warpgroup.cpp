#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_warpgroup.h>
#include <bs/kernels/cuda/block_sparse/item_launch.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_sdd_operands.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/kernels/cuda/jit/warpgroup_mma.h>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

namespace {

constexpr int depth = 64;  // of a stage

WarpgroupTile tile_of(const WarpgroupKernel& k) {
  return k.sampled ? warpgroup_sdd_tile(k.block, {k.cols == 128, k.gathered})
                   : warpgroup_dsd_tile(k.cols);
}

/// Values of blocks in boxes of up to 64 by 64.
DenseMap block_map(const Tensor& values, int block) {
  const int side = std::min(block, depth);
  return {values, block, values.numel() / block, block, side, side};
}

/// C, or what leaves with it, in boxes of what is written at a time.
DenseMap result_map(const Tensor& x, const DsdProblem& p, const WarpgroupKernel& k) {
  const int64_t m = int64_t{p.block_rows()} * p.layout.block;
  const int rows = k.gathered ? std::min(k.block, depth) : depth;
  DenseMap map = k.c_by_columns ? DenseMap(x, m, p.n, p.c.col, rows, depth)
                                : DenseMap(x, p.n, m, p.c.row, depth, rows);
  map.add(p.batch.numel(), m * p.n);
  return map;
}

}  // namespace

KernelLaunch launch_of(const WarpgroupKernel& k) {
  constexpr int groups = 2;  // warpgroups that multiply
  const WarpgroupTile tile = tile_of(k);
  return {.threads = WarpgroupTile::threads,
          .shared_bytes = k.sampled ? tile.sdd_shared_bytes(k.block) : tile.dsd_shared_bytes(),
          .sums = {groups, 64, k.cols},
          .arrivals = groups,
          .reduced_rows = device::reduced_side,
          .reduced_columns =
              k.sampled ? std::min(k.block, device::reduced_columns) : device::reduced_columns};
}

jit::Source source_of(const WarpgroupKernel& k, const GemmEpilogue* epilogue) {
  const WarpgroupTile tile = tile_of(k);
  const std::string product = k.sampled ? "Sdd" : "Dsd";
  std::string config = format(
      "struct Config {\n  using Element = {};\n  using Mma = ::Mma;\n"
      "  using Epilogue = bs::cuda::device::{};\n  static constexpr int staged = {};\n"
      "  static constexpr int block = {}, n = {}, stages = {};\n"
      "  static constexpr bool gathered = {};\n",
      device_type_name(k.dtype), epilogue ? "Epilogue" : "NoEpilogue", k.staged, k.block, tile.cols,
      tile.stages, k.gathered);
  config += k.sampled ? format("  static constexpr bool a_k_contiguous = {}, turned = {};\n",
                               k.a_along_k, k.c_by_columns)
                      : format("  static constexpr bool transposed = {}, c_by_columns = {};\n",
                               !k.a_along_k, k.c_by_columns);
  config += format(
      "  static constexpr bool b_k_contiguous = {};\n};\n"
      "using Kernel = bs::cuda::device::Warpgroup{}<Config>;\n",
      k.b_along_k, product);
  return source_of(k, launch_of(k),
                   {.header = k.sampled ? "warpgroup_sdd.cuh" : "warpgroup_dsd.cuh",
                    .ahead = warpgroup_mma(tile.cols, k.dtype, k.a_along_k, k.b_along_k),
                    .types = config,
                    .type = "Kernel",
                    .factors = format("wgmma_{}", k.dtype),
                    .variant = format("{}_n{}{}", k.c_by_columns ? "_t" : "", tile.cols,
                                      k.gathered ? "_gathered" : ""),
                    .parameter = format("bs::cuda::device::Warpgroup{}Params params", product),
                    .body = "  Kernel::run(params);\n"},
                   epilogue);
}

std::vector<WarpgroupKernel> all_warpgroup_kernels(bool epilogues) {
  std::vector<WarpgroupKernel> all;
  for (const DType dtype : {f16, bf16})
    for (const int block : {16, 32, 64, 128})
      for (const bool a : {false, true})
        for (const bool b : {false, true}) {
          for (const SddForm form : {SddForm{},
                                     {.narrow = true},
                                     {.gathered = true},
                                     {.narrow = true, .gathered = true}})
            for (const bool turned : {false, true}) {
              if (turned && (block >= depth || a || !b)) continue;
              if (form.gathered && block > depth) continue;
              if (epilogues && turned) continue;
              all.push_back({{true, dtype, block, a, b, turned},
                             warpgroup_sdd_tile(block, form).cols,
                             form.gathered});
            }
          for (const bool c : {false, true})
            for (const int cols : {64, 128, 256})
              for (const bool gathered : {false, true})
                if (!gathered || block < 128)
                  all.push_back({{false, dtype, block, a, b, c}, cols, gathered});
        }
  return all;
}

void warpgroup_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
                   const DsdProblem& p, Stream stream) {
  const int block = p.layout.block;
  const Kept<DeviceStrips> strips = device_strips(*p.pattern, work.plan.strips, stream);
  const Tensor* const aside = staged_aside(p.epilogue);
  const WarpgroupKernel k{kernel_of(p, b.dtype()), work.plan.cols, strips->gathered, aside ? 2 : 1};
  device::WarpgroupDsdParams params{};
  const int64_t items = describe_dsd(b, p, work, *strips, block_map(values, block),
                                     {.depth = std::min(block, depth)}, params);
  params.c = result_map(c, p, k).encode("dsd");
  if (aside) params.aside = result_map(*aside, p, k).encode("dsd");
  params.blocks = values.data();
  launch_product(k, params, items, work.split, p, stream);
}

void warpgroup_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
                   const SddProblem& p, Stream stream) {
  const int block = p.layout.block, side = std::min(block, depth);
  const SddForm form = work.plan.form;
  const Tensor* const aside = staged_aside(p.epilogue);
  const WarpgroupKernel k{kernel_of(p, a.dtype(), work.plan.transposed),
                          warpgroup_sdd_tile(block, form).cols, form.gathered, aside ? 2 : 1};
  device::WarpgroupSddParams params{};
  const DescribedSdd described = describe_sdd(a, b, p, work,
                                              {.depth = depth,
                                               .rows = form.gathered ? side : depth,
                                               .cols = side,
                                               .gathered = form.gathered},
                                              params, stream);
  params.values = block_map(values, block).encode("sdd");
  if (aside) params.aside = block_map(*aside, block).encode("sdd");
  launch_product(k, params, described.items, work.split, p, stream);
}

}  // namespace bs::cuda
