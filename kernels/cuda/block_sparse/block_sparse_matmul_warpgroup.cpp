#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_warpgroup.h>
#include <bs/kernels/cuda/block_sparse/item_launch.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/kernels/cuda/jit/warpgroup_mma.h>
#include <bs/lib/cuda/launch.h>

#include <cstdint>
#include <utility>

namespace bs::cuda {

namespace {

constexpr int depth = 64;  // of a stage

const char* word(bool value) { return value ? "true" : "false"; }

WarpgroupTile tile_of(const WarpgroupKernel& k) {
  return k.sampled ? warpgroup_sdd_tile(k.block, {k.cols == 128, k.gathered})
                   : warpgroup_dsd_tile(k.cols);
}

int shared_bytes(const WarpgroupKernel& k) {
  return k.sampled ? tile_of(k).sdd_shared_bytes(k.block) : tile_of(k).dsd_shared_bytes();
}

/// Values of blocks in boxes of a piece of one.
DenseMap block_map(const Tensor& values, int block) {
  const int side = std::min(block, depth);
  return {values, block, values.numel() / block, block, side, side};
}

WarpgroupKernel kernel_of(const DsdProblem& p, DType dtype, int cols, bool gathered, int staged) {
  return {.sampled = false,
          .dtype = dtype,
          .block = p.layout.block,
          .a_along_k = !p.transposed,
          .b_along_k = p.b.col != 1,
          .c_by_columns = p.c.col != 1,
          .cols = cols,
          .gathered = gathered,
          .staged = staged,
          .epilogue = epilogue_key(p.epilogue)};
}
WarpgroupKernel kernel_of(const SddProblem& p, bool turned, DType dtype, SddForm form, int staged) {
  return {.sampled = true,
          .dtype = dtype,
          .block = p.layout.block,
          .a_along_k = turned ? p.b.col != 1 : p.a.col == 1,
          .b_along_k = turned ? p.a.col == 1 : p.b.col != 1,
          .c_by_columns = turned,
          .cols = warpgroup_sdd_tile(p.layout.block, form).cols,
          .gathered = form.gathered,
          .staged = staged,
          .epilogue = epilogue_key(p.epilogue)};
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

/// An operand of sdd: A, or the transpose of B.
struct SddOperand {
  const Tensor& x;
  int number;    ///< in the loops of the problem
  bool along_k;  ///< neighbours along the depth are side by side
  int64_t rows, stride, head;
};
DenseMap sdd_map(const SddProblem& p, const Axes& axes, const SddOperand& o, int box_rows,
                 int box_depth, device::BatchSteps& steps) {
  DenseMap map = o.along_k ? DenseMap(o.x, p.k, o.rows, o.stride, box_depth, box_rows)
                           : DenseMap(o.x, o.rows, p.k, o.stride, box_rows, box_depth);
  map.add(o.head != 0 ? p.layout.heads : 1, o.head);
  map.add_axes(axes, axes.strides(p.batch, o.number, p.sum, o.number), 2, steps);
  return map;
}

ItemLaunch launch_of(const WarpgroupKernel& k, int64_t items) {
  constexpr int groups = 2;  // warpgroups that multiply
  return {.threads = WarpgroupTile::threads,
          .shared_bytes = shared_bytes(k),
          .items = items,
          .sums = {groups, 64, k.cols},
          .arrivals = groups};
}

}  // namespace

jit::Source warpgroup_source(const WarpgroupKernel& k, const GemmEpilogue* epilogue) {
  const WarpgroupTile tile = tile_of(k);
  const char* const op = k.sampled ? "sdd" : "dsd";
  const char* const type = k.sampled ? "WarpgroupSdd" : "WarpgroupDsd";
  const std::string name =
      format("{}_wgmma_{}_b{}_{}{}{}_n{}{}{}", op, to_string(k.dtype), k.block,
             k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n", k.c_by_columns ? "_t" : "",
             tile.cols, k.gathered ? "_gathered" : "", epilogue ? "_epilogue" : "");
  std::string code =
      format("#include <bs/kernels/cuda/device/block_sparse/warpgroup_{}.cuh>\n\n", op);
  code += warpgroup_mma(tile.cols, k.dtype, k.a_along_k, k.b_along_k);
  if (epilogue) code += epilogue_text(*epilogue, k.dtype, k.c_by_columns);
  code += format(
      "struct Config {\n  using Element = {};\n  using Mma = ::Mma;\n"
      "  using Epilogue = bs::cuda::device::{};\n  static constexpr int staged = {};\n",
      device_type_name(k.dtype), epilogue ? "Epilogue" : "NoEpilogue", k.staged);
  code += format("  static constexpr int block = {}, n = {}, stages = {};\n", k.block, tile.cols,
                 tile.stages);
  code += k.sampled ? format(
                          "  static constexpr bool gathered = {};\n"
                          "  static constexpr bool a_k_contiguous = {}, turned = {};\n",
                          word(k.gathered), word(k.a_along_k), word(k.c_by_columns))
                    : format(
                          "  static constexpr bool gathered = {};\n"
                          "  static constexpr bool transposed = {}, c_by_columns = {};\n",
                          word(k.gathered), word(!k.a_along_k), word(k.c_by_columns));
  code += format("  static constexpr bool b_k_contiguous = {};\n};\n", word(k.b_along_k));
  code += format("using Kernel = bs::cuda::device::{}<Config>;\n", type);
  code += format("static_assert(Kernel::threads == {} && Kernel::shared_bytes <= {});\n\n",
                 WarpgroupTile::threads, shared_bytes(k));
  code += format(
      "extern \"C\" __global__ void __launch_bounds__(Kernel::threads, 1)\n"
      "    {}(const __grid_constant__ bs::cuda::device::{}Params params) {\n"
      "  Kernel::run(params);\n}\n",
      name, type);
  return {name, code, device_headers()};
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
              all.push_back({true, dtype, block, a, b, turned, warpgroup_sdd_tile(block, form).cols,
                             form.gathered});
            }
          for (const bool c : {false, true})
            for (const int cols : {64, 128, 256})
              for (const bool gathered : {false, true})
                if (!gathered || block < 128)
                  all.push_back({false, dtype, block, a, b, c, cols, gathered});
        }
  return all;
}

void warpgroup_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
                   const DsdProblem& p, Stream stream) {
  const int block = p.layout.block;
  const int64_t m = int64_t{p.block_rows()} * block;
  const Kept<DeviceStrips> strips = device_strips(*p.pattern, work.plan.strips, stream);
  const Tensor* const aside = staged_aside(p.epilogue);
  const WarpgroupKernel k =
      kernel_of(p, b.dtype(), work.plan.cols, strips->gathered, aside ? 2 : 1);
  device::WarpgroupDsdParams params{};
  const int64_t items = describe_dsd(b, p, work, *strips, block_map(values, block),
                                     {.depth = std::min(block, depth)}, params);
  params.c = result_map(c, p, k).encode("dsd");
  if (aside) params.aside = result_map(*aside, p, k).encode("dsd");
  params.blocks = values.data();
  const EpilogueLaunch epilogue(p.epilogue, k.c_by_columns, {p.batch.numel(), m, p.n},
                                device::reduced_side, device::reduced_columns, stream);
  params.epilogue = epilogue.arguments();
  launch_items(k, params, launch_of(k, items), work.split, p.epilogue, stream, warpgroup_source);
  epilogue.reduce();
}

void warpgroup_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
                   const SddProblem& p, Stream stream) {
  const int block = p.layout.block;
  const bool turned = work.plan.transposed;
  const Axes axes(p.batch, p.sum);
  const int64_t m = int64_t{p.layout.rows} * block, n = int64_t{p.layout.cols} * block;
  const Tensor* const aside = staged_aside(p.epilogue);
  const WarpgroupKernel k = kernel_of(p, turned, a.dtype(), work.plan.form, aside ? 2 : 1);
  device::WarpgroupSddParams params{};
  const SddOperand left{a, 0, p.a.col == 1, m, p.a.col == 1 ? p.a.row : p.a.col, p.a_head};
  const SddOperand right{b, 1, p.b.col != 1, n, p.b.col != 1 ? p.b.col : p.b.row, p.b_head};
  const SddOperand &strip = turned ? right : left, &gathered = turned ? left : right;
  const int side = std::min(block, depth);
  params.a =
      sdd_map(p, axes, strip, k.gathered ? side : depth, depth, params.a_steps).encode("sdd");
  params.b = sdd_map(p, axes, gathered, side, depth, params.b_steps).encode("sdd");
  params.values = block_map(values, block).encode("sdd");
  if (aside) params.aside = block_map(*aside, block).encode("sdd");
  params.heads = p.layout.heads;
  params.m = static_cast<int>(m);
  Tensor columns;
  if (k.gathered) {
    params.list = work.shares.gathered(turned ? p.layout.cols : p.layout.rows);
  } else {
    const Kept<DeviceStrips> strips = device_strips(*p.pattern, work.plan.strips, stream);
    params.list = strips->list;
    columns = strips->columns;
  }
  params.lists = list_memory(work.shares.packed, columns, work.split.packed);
  params.work = work.shares.work;
  params.works = work.items;
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.a_head = strip.head != 0;
  params.b_head = gathered.head != 0;
  params.depth = static_cast<int>(p.k);
  params.blocks = p.layout.nnz;
  const EpilogueLaunch epilogue(
      p.epilogue, false, {p.batch.numel(), int64_t{p.layout.nnz} * block, block},
      device::reduced_side, std::min(block, device::reduced_columns), stream);
  params.epilogue = epilogue.arguments();
  launch_items(k, params, launch_of(k, p.batch.numel() * work.items), work.split, p.epilogue,
               stream, warpgroup_source);
  epilogue.reduce(p.layout);
}

}  // namespace bs::cuda
