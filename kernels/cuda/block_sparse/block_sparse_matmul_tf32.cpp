#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/block_sparse/item_launch.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/warpgroup_mma.h>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_problem.cuh>

#include <utility>

namespace bs::cuda {

namespace {

constexpr int depth = 32;  // of a stage

const char* word(bool value) { return value ? "true" : "false"; }

bool gathers(const Tf32Kernel& k) { return k.sampled && tf32_gathers(k.block); }

Tf32Tile tile_of(const Tf32Kernel& k) {
  return gathers(k) ? tf32_gathered_tile(k.split) : tf32_tile(k.block, k.split, k.large);
}

/// The narrow operand, which the copy engine rounds where it is not split.
DenseMap rounded(DenseMap map, const Tf32Kernel& k) {
  if (!k.split) map.tensor.element = TensorMapElement::tf32;
  return map;
}

/// Lines of an operand that lie side by side in a piece where the depth is across them.
int side_of(int box) { return std::min(box, depth); }

/// An operand of sdd, in boxes of `box` lines along the depth or, in pieces, of as many across it.
template <int N, int M>
DenseMap sdd_map(const Tensor& x, bool along_k, int64_t k, int64_t lines, int64_t line_stride,
                 int box, int heads, int64_t head_stride, const Axes& axes,
                 const StridedLoop<N>& over, const StridedLoop<M>& summed, int of,
                 device::BatchSteps& steps) {
  DenseMap map = along_k ? DenseMap(x, k, lines, line_stride, depth, box)
                         : DenseMap(x, side_of(box), k, line_stride, side_of(box), depth);
  const bool has_heads = head_stride != 0 && heads > 1;
  if (!along_k) map.add(lines / side_of(box), side_of(box), box / side_of(box));
  if (along_k || has_heads) map.add(has_heads ? heads : 1, head_stride);
  map.add_axes(axes, axes.strides(over, of, summed, of), along_k || !has_heads ? 2 : 1, steps);
  return map;
}

ItemLaunch launch_of(const Tf32Kernel& k, int64_t items) {
  const Tf32Tile tile = tile_of(k);
  return {.threads = Tf32Tile::threads,
          .shared_bytes = tile.shared_bytes(),
          .items = items,
          .sums = {tile.n, tile.columns()},
          .arrivals = 2};
}

/// Fills in what an sdd is told of its operands, in boxes of so many lines.
void describe_operands(const Tensor& a, const Tensor& b, const SddProblem& p, const Tf32Kernel& k,
                       int a_box, int b_box, device::WarpgroupTf32SddParams& params) {
  const Axes axes(p.batch, p.sum);
  const int heads = p.layout.heads;
  const int64_t m = int64_t{p.layout.rows} * k.block, n = int64_t{p.layout.cols} * k.block;
  params.a = rounded(sdd_map(a, k.a_along_k, p.k, m, k.a_along_k ? p.a.row : p.a.col, a_box, heads,
                             p.a_head, axes, p.batch, p.sum, 0, params.a_steps),
                     k)
                 .encode("sdd");
  params.b = sdd_map(b, k.b_along_k, p.k, n, k.b_along_k ? p.b.col : p.b.row, b_box, heads,
                     p.b_head, axes, p.batch, p.sum, 1, params.b_steps)
                 .encode("sdd");
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.a_head = p.a_head != 0 && heads > 1;
  params.b_head = p.b_head != 0 && heads > 1;
  params.depth = static_cast<int>(p.k);
  params.blocks = p.layout.nnz;
  params.heads = heads;
  params.m = static_cast<int>(m);
}

}  // namespace

jit::Source tf32_source(const Tf32Kernel& k, const GemmEpilogue* epilogue) {
  const Tf32Tile tile = tile_of(k);
  const char* const op = k.sampled ? "sdd" : "dsd";
  const char* const type = gathers(k)  ? "WarpgroupTf32Gathered"
                           : k.sampled ? "WarpgroupTf32Sdd"
                                       : "WarpgroupTf32Dsd";
  const std::string name =
      format("{}_wgmma_{}_b{}_{}{}{}_n{}{}{}{}", op, k.split ? "f32" : "tf32", k.block,
             k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n", k.c_by_columns ? "_t" : "",
             tile.columns(), tile.rows == 4 ? "_quads" : "", k.gathered_rows ? "_gathered" : "",
             epilogue ? "_epilogue" : "");
  std::string code =
      format("#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_{}.cuh>\n\n",
             gathers(k) ? "gathered" : op);
  code += warpgroup_mma_tf32(tile.n / tile.rows);
  if (epilogue) code += epilogue_text(*epilogue, f32, !k.c_by_columns);
  code += format(
      "struct Config {\n  using Mma = ::Mma;\n"
      "  using Epilogue = bs::cuda::device::{};\n  static constexpr int staged = {};\n",
      epilogue ? "Epilogue" : "NoEpilogue", k.staged);
  code += format(
      "  static constexpr int block = {}, n = {}, wide = "
      "{}, stages = {};\n",
      k.block, tile.n, tile.wide, tile.stages);
  code += format("  static constexpr bool split = {}, c_by_columns = {};\n", word(k.split),
                 word(k.c_by_columns));
  code += format("  static constexpr bool gathered = {}, apart = {};\n", word(gathers(k)),
                 word(tile.apart));
  code += format("  static constexpr int side = {}, rows = {};\n", side_of(k.block), tile.rows);
  if (!k.sampled)
    code += format("  static constexpr bool gathered_rows = {};\n", word(k.gathered_rows));
  code += format("  static constexpr bool narrow_along_k = {}, wide_along_k = {};\n};\n",
                 word(k.a_along_k), word(k.b_along_k));
  code += format("using Kernel = bs::cuda::device::{}<Config>;\n", type);
  code += format("static_assert(Kernel::threads == {} && Kernel::shared_bytes <= {});\n\n",
                 Tf32Tile::threads, tile.shared_bytes());
  code += format(
      "extern \"C\" __global__ void __launch_bounds__(Kernel::threads, 1)\n"
      "    {}(const __grid_constant__ bs::cuda::device::WarpgroupTf32{}Params params) {\n"
      "  Kernel::run(params);\n}\n",
      name, k.sampled ? "Sdd" : "Dsd");
  return {name, code, device_headers()};
}

std::vector<Tf32Kernel> all_tf32_kernels(bool epilogues) {
  std::vector<Tf32Kernel> all;
  for (const int block : {16, 32, 64, 128})
    for (const bool split : {false, true})
      for (const bool a : {false, true})
        for (const bool b : {false, true}) {
          if (!epilogues || !tf32_gathers(block))
            all.push_back({true, block, split, false, false, a, b, false});
          for (const bool c : {false, true})
            for (const bool large : {false, true})
              for (const bool gathered : {false, true})
                if (block >= 32 && (!large || (block == 32 && !split)) &&
                    (!gathered || block == 32))
                  all.push_back({false, block, split, large, gathered, a, b, c});
        }
  return all;
}

void tf32_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
              const DsdProblem& p, Stream stream) {
  const int block = p.layout.block;
  const int64_t m = int64_t{p.block_rows()} * block;
  const Tf32Tile tile = tf32_tile(block, !p.tf32, work.plan.large);
  const Kept<DeviceStrips> strips = device_strips(*p.pattern, work.plan.strips, stream);
  const Tensor* const aside = staged_aside(p.epilogue);
  const Tf32Kernel k{.sampled = false,
                     .block = block,
                     .split = !p.tf32,
                     .large = work.plan.large,
                     .gathered_rows = strips->gathered,
                     .a_along_k = !p.transposed,
                     .b_along_k = p.b.col != 1,
                     .c_by_columns = p.c.col != 1,
                     .staged = aside ? 2 : 1,
                     .epilogue = epilogue_key(p.epilogue)};
  const int lines = k.a_along_k ? tile.n / tile.rows : depth;  // of a box
  DenseMap value_map = rounded(
      {values, k.a_along_k ? block : depth, values.numel() / block, block, depth, lines}, k);
  if (!k.a_along_k && block > depth) value_map.add(block / depth, depth, tile.n / depth);
  device::WarpgroupTf32DsdParams params{};
  const int64_t items =
      describe_dsd(b, p, work, *strips, value_map,
                   {.depth = depth, .slabs = std::max(1, block / tile.n)}, params);
  params.result = c.data<float>();
  if (aside) params.beside = aside->data<float>();
  params.result_step = k.c_by_columns ? p.c.col : p.c.row;
  params.result_batch = m * p.n;
  params.whole_quads = p.n % 4 == 0;
  const EpilogueLaunch epilogue(p.epilogue, !k.c_by_columns, {p.batch.numel(), p.n, m},
                                device::tf32_reduced_side, tile.n / tile.rows, stream);
  params.epilogue = epilogue.arguments();
  launch_items(k, params, launch_of(k, items), work.split, p.epilogue, stream, tf32_source);
  epilogue.reduce();
}

void tf32_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
              const SddProblem& p, Stream stream) {
  const int block = p.layout.block;
  const Tensor* const aside = staged_aside(p.epilogue);
  const Tf32Kernel k{.sampled = true,
                     .block = block,
                     .split = !p.tf32,
                     .a_along_k = p.a.col == 1,
                     .b_along_k = p.b.col != 1,
                     .staged = aside ? 2 : 1,
                     .epilogue = epilogue_key(p.epilogue)};
  const Tf32Tile tile = tile_of(k);
  device::WarpgroupTf32SddParams params{};
  describe_operands(a, b, p, k, gathers(k) ? block : tile.n, block, params);
  Tensor columns;
  if (gathers(k)) {
    params.list = work.shares.gathered(p.layout.rows);
  } else {
    const Kept<DeviceStrips> strips = device_strips(*p.pattern, work.plan.strips, stream);
    params.list = strips->list;
    columns = strips->columns;
  }
  params.lists = list_memory(work.shares.packed, columns, work.split.packed);
  params.work = work.shares.work;
  params.works = work.items;
  params.result = values.data<float>();
  if (aside) params.beside = aside->data<float>();
  const int64_t batch = p.batch.numel(), slabs = gathers(k) ? 1 : block / tile.n;
  const EpilogueLaunch epilogue(p.epilogue, true, {batch, block, int64_t{p.layout.nnz} * block},
                                device::tf32_reduced_side, tile.n, stream);
  params.epilogue = epilogue.arguments();
  launch_items(k, params, launch_of(k, batch * work.items * slabs), work.split, p.epilogue, stream,
               tf32_source);
  epilogue.reduce(p.layout);
}

}  // namespace bs::cuda
