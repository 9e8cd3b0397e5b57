#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_warpgroup.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/kernels/cuda/block_sparse/turned_operand.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/kernels/cuda/block_sparse/work_counter.h>
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
  return k.sampled ? warpgroup_sdd_tile(k.block, {k.cols == 128, k.ctas, k.gathered})
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

bool on_hopper(const Tensor& x) {
  return warpgroup_applies(x.dtype(), device_properties(x.device()).capability);
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
          .ctas = form.ctas,
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

/// Launches the pieces of `split`, or where it has none `items`.
template <class Params>
void launch(const WarpgroupKernel& k, Params& params, const BlockSparseEpilogue* epilogue,
            int64_t items, const DevicePieces& split, Stream stream) {
  static auto* const family = new jit::KernelFamily<WarpgroupKernel>;
  const WorkCounter counter(stream, 2 + 2 * k.ctas * split.slots);
  Tensor partials;
  if (split.count > 0) {
    partials = Tensor::empty({split.slots, 2 * k.ctas, 64, k.cols}, f32, stream.device());
    params.split = {split.pieces, partials.data<float>(), counter.get() + 2};
    items = split.count;
  }
  params.next = counter.get();
  params.items = static_cast<int>(items);
  const int64_t most = device_properties(stream.device()).multiprocessors / k.ctas;
  const jit::Kernel& kernel = family->get(k, stream.device(), [&] {
    return warpgroup_source(k, epilogue ? &epilogue->expression : nullptr);
  });
  jit::launch(kernel,
              {.grid = dim3(static_cast<unsigned>(std::min(items, most) * k.ctas)),
               .block = dim3(WarpgroupTile::threads),
               .cluster = k.ctas,
               .shared_bytes = shared_bytes(k)},
              stream, params);
}

/// The product by a schedule; `turned`: strips of B's columns.
bool launch_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
                bool turned, const SddSchedule& schedule, Stream stream) {
  const int block = p.layout.block;
  const Axes axes(p.batch, p.sum);
  const int64_t m = int64_t{p.layout.rows} * block, n = int64_t{p.layout.cols} * block;
  const Tensor* const aside = staged_aside(p.epilogue);
  const WarpgroupKernel k = kernel_of(p, turned, a.dtype(), schedule.form, aside ? 2 : 1);
  device::WarpgroupSddParams params{};
  const SddOperand left{a, 0, p.a.col == 1, m, p.a.col == 1 ? p.a.row : p.a.col, p.a_head};
  const SddOperand right{b, 1, p.b.col != 1, n, p.b.col != 1 ? p.b.col : p.b.row, p.b_head};
  const SddOperand &strip = turned ? right : left, &gathered = turned ? left : right;
  const int side = std::min(block, depth);
  const DenseMap a_map = sdd_map(p, axes, strip, k.gathered ? side : depth, depth, params.a_steps);
  const DenseMap b_map = sdd_map(p, axes, gathered, side, depth, params.b_steps);
  const DenseMap value_map = block_map(values, block);

  const int64_t items = p.batch.numel() * schedule.works;
  if (!a_map.fit || !b_map.fit || !value_map.fit || !fits_int(items)) return false;

  params.a = a_map.encode("sdd");
  params.b = b_map.encode("sdd");
  params.values = value_map.encode("sdd");
  if (aside) params.aside = block_map(*aside, block).encode("sdd");
  params.heads = p.layout.heads;
  params.m = static_cast<int>(m);
  params.list = schedule.list;
  params.lists = list_memory(schedule.shares.packed, schedule.columns, schedule.split.packed);
  params.work = schedule.shares.work;
  params.works = schedule.works;
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
  launch(k, params, p.epilogue, items, schedule.split, stream);
  epilogue.reduce(p.layout);
  return true;
}

SplitCosts dsd_costs(int block, int cols) {
  return split_costs(warpgroup_dsd_step(block, cols), int64_t{128} * cols * sizeof(float));
}

/// The rated time of dsd with tiles of so many columns, by its schedule.
int64_t rated_dsd_time(const DsdProblem& p, bool pairs, int cols, Device device) {
  const int block = p.layout.block;
  const BlockSparseStrips& strips =
      dsd_strips(p, WarpgroupTile::dsd_rows(block), cols, device, pairs);
  const SplitCosts costs = dsd_costs(block, cols);
  const DsdExtent extent = dsd_extent(p, strips, {.cols = cols, .costs = costs}, 2);
  const int workers = device_properties(device).multiprocessors;
  return split_work(dsd_items(strips, block, extent), workers, costs).rated_time();
}

/// The tile that is soonest done: a narrower one than `p.n` columns could fill where there are few
/// items, or some of them are long. Found once for a layout and for what it depends on besides.
WarpgroupTile soonest_dsd_tile(const DsdProblem& p, bool pairs, Device device) {
  const WarpgroupTile widest = warpgroup_dsd_tile(p.n);
  const int64_t batch = p.batch.numel(), terms = p.sum.numel();
  const int64_t items = ceil_div(p.block_rows(), WarpgroupTile::dsd_rows(p.layout.block)) * batch *
                        ceil_div(p.n, widest.cols);
  if (widest.cols == 64 || items > 2 * device_properties(device).multiprocessors || batch >= 512 ||
      terms >= 1 << 12 || p.n >= 1 << 20)
    return widest;
  struct Choice {
    int cols;
  };
  const uint64_t key =
      static_cast<uint64_t>(device.index()) | static_cast<uint64_t>(p.transposed) << 6 |
      static_cast<uint64_t>(p.sums_heads()) << 7 | static_cast<uint64_t>(p.c.col != 1) << 8 |
      static_cast<uint64_t>(pairs) << 9 | static_cast<uint64_t>(batch) << 10 |
      static_cast<uint64_t>(terms) << 20 | static_cast<uint64_t>(p.n) << 32;
  const Choice& kept = p.pattern->derived<Choice>(key, [&] {
    Choice best{widest.cols};
    int64_t soonest = rated_dsd_time(p, pairs, widest.cols, device);
    for (int cols = widest.cols / 2; cols >= 64; cols /= 2) {
      const int64_t time = rated_dsd_time(p, pairs, cols, device);
      if (time >= soonest) continue;
      soonest = time;
      best.cols = cols;
    }
    return best;
  });
  return warpgroup_dsd_tile(kept.cols);
}

}  // namespace

jit::Source warpgroup_source(const WarpgroupKernel& k, const GemmEpilogue* epilogue) {
  const WarpgroupTile tile = tile_of(k);
  const char* const op = k.sampled ? "sdd" : "dsd";
  const char* const type = k.sampled ? "WarpgroupSdd" : "WarpgroupDsd";
  const std::string name = format("{}_wgmma_{}_b{}_{}{}{}_n{}{}{}{}", op, to_string(k.dtype),
                                  k.block, k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n",
                                  k.c_by_columns ? "_t" : "", tile.cols, k.ctas > 1 ? "_pair" : "",
                                  k.gathered ? "_gathered" : "", epilogue ? "_epilogue" : "");
  std::string code =
      format("#include <bs/kernels/cuda/device/block_sparse/warpgroup_{}.cuh>\n\n", op);
  code += warpgroup_mma(tile.cols, k.dtype, k.a_along_k, k.b_along_k);
  if (k.ctas > 1)
    code += "namespace narrow {\n" +
            warpgroup_mma(tile.cols / 2, k.dtype, k.a_along_k, k.b_along_k) + "}\n";
  if (epilogue) code += epilogue_text(*epilogue, k.dtype, k.c_by_columns);
  code += format(
      "struct Config {\n  using Element = {};\n  using Mma = ::Mma;\n"
      "  using Epilogue = bs::cuda::device::{};\n  static constexpr int staged = {};\n",
      device_type_name(k.dtype), epilogue ? "Epilogue" : "NoEpilogue", k.staged);
  code += format("  static constexpr int block = {}, n = {}, stages = {};\n", k.block, tile.cols,
                 tile.stages);
  code += k.sampled ? format(
                          "  static constexpr int ctas = {};\n"
                          "  static constexpr bool gathered = {};\n"
                          "  static constexpr bool a_k_contiguous = {}, turned = {};\n",
                          k.ctas, word(k.gathered), word(k.a_along_k), word(k.c_by_columns))
                    : format(
                          "  static constexpr bool gathered = {};\n"
                          "  static constexpr bool transposed = {}, c_by_columns = {};\n",
                          word(k.gathered), word(!k.a_along_k), word(k.c_by_columns));
  if (k.ctas > 1) code += "  using NarrowMma = ::narrow::Mma;\n";
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
                                     {.ctas = 2},
                                     {.gathered = true},
                                     {.narrow = true, .gathered = true}})
            for (const bool turned : {false, true}) {
              if (turned && (block >= depth || a || !b)) continue;
              if (form.gathered ? block > depth : form.ctas > 1 && block <= depth) continue;
              if (epilogues && (turned || form.ctas > 1)) continue;
              all.push_back({true, dtype, block, a, b, turned, warpgroup_sdd_tile(block, form).cols,
                             form.ctas, form.gathered});
            }
          for (const bool c : {false, true})
            for (const int cols : {64, 128, 256})
              for (const bool gathered : {false, true})
                if (!gathered || block < 128)
                  all.push_back({false, dtype, block, a, b, c, cols, 1, gathered});
        }
  return all;
}

bool warpgroup_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
                   Stream stream) {
  const int block = p.layout.block;
  const Axes axes(p.batch, p.sum);
  const int64_t m = int64_t{p.block_rows()} * block;
  if (!on_hopper(b) || block < 16 || p.layout.nnz == 0 || !axes.fit(3) ||
      !axes.dense(p.batch, 2, m * p.n) || !fits_int(values.numel() / block))
    return false;
  if (block == 16 && short_lines(p, b)) {  // which take as long as ones of 128 bytes
    const auto q = with_long_lines(p, b, stream);
    return warpgroup_dsd(values, q.b, c, q.problem, stream);
  }
  const Tensor* const aside = staged_aside(p.epilogue);
  const bool pairs = 2 * block == depth && p.b.col != 1;  // are whole lines of B
  const WarpgroupTile tile = soonest_dsd_tile(p, pairs, stream.device());
  const BlockSparseStrips& strips =
      dsd_strips(p, WarpgroupTile::dsd_rows(block), tile.cols, stream.device(), pairs);
  const WarpgroupKernel k = kernel_of(p, b.dtype(), tile.cols, strips.gathered, aside ? 2 : 1);
  const DenseMap c_map = result_map(c, p, k);
  if (!c_map.fit) return false;
  device::WarpgroupDsdParams params{};
  const DsdWork work = describe_dsd(b, p, axes, strips, block_map(values, block),
                                    {.cols = tile.cols,
                                     .depth = std::min(block, depth),
                                     .b_along_k = k.b_along_k,
                                     .pairs = pairs,
                                     .costs = dsd_costs(block, tile.cols)},
                                    params);
  if (!work.schedule) return false;
  params.c = c_map.encode("dsd");
  if (aside) params.aside = result_map(*aside, p, k).encode("dsd");
  params.blocks = values.data();
  const EpilogueLaunch epilogue(p.epilogue, k.c_by_columns, {p.batch.numel(), m, p.n},
                                device::reduced_side, device::reduced_columns, stream);
  params.epilogue = epilogue.arguments();
  launch(k, params, p.epilogue, work.items, work.schedule->split, stream);
  epilogue.reduce();
  return true;
}

bool warpgroup_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
                   Stream stream) {
  const int block = p.layout.block;
  const Axes axes(p.batch, p.sum);
  const int64_t size = int64_t{p.layout.nnz} * block * block;
  if (!on_hopper(a) || block < 16 || p.k == 0 || !axes.fit(2) || !axes.dense(p.batch, 2, size) ||
      !fits_int(values.numel() / block))
    return false;
  const bool narrow = block < depth && p.b.col == 1 && p.b.row != 1;
  const bool turned = narrow && p.a.col == 1 && p.a.row != 1 && !p.epilogue;
  if (narrow && !turned && short_lines(p, b)) {
    const auto q = with_long_lines(p, b, stream);
    return warpgroup_sdd(a, q.b, values, q.problem, stream);
  }
  const int64_t m = int64_t{p.layout.rows} * block, n = int64_t{p.layout.cols} * block;
  const bool along_k = turned ? p.b.col != 1 : p.a.col == 1;
  const Tensor strip = turned ? b.transpose(-2, -1) : a;  // rows by depth
  const bool whole = strip.transpose(-2, -1).is_contiguous();
  const SddExtent extent{.batch = p.batch.numel(),
                         .steps = p.sum.numel() * ceil_div(p.k, depth),
                         .columns = turned ? m : n,
                         .transposed = turned,
                         .by_depth = !p.epilogue,
                         .along_k = along_k,
                         .copied = along_k || !whole ? 0 : strip.numel()};
  if (!extent.fits()) return false;
  const BlockSparseStrips& strips =
      strips_of(*p.pattern, turned, warpgroup_sdd_tile(block, {}).sdd_rows(block), stream.device());
  const SddSchedule& schedule = schedule_sdd(*p.pattern, strips, extent, stream.device());
  if (!schedule.copies) return launch_sdd(a, b, values, p, turned, schedule, stream);
  SddProblem q = p;
  const Tensor copied = turn(strip.transpose(-2, -1), stream);
  if (turned) {
    q.b = {.row = 1, .col = p.k};
  } else {
    q.a = {.row = p.k, .col = 1};
  }
  return launch_sdd(turned ? a : copied, turned ? copied.transpose(-2, -1) : b, values, q, turned,
                    schedule, stream);
}

}  // namespace bs::cuda
