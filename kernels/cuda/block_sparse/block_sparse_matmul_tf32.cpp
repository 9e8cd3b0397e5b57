#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tf32_schedule.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_dsd_operands.h>
#include <bs/kernels/cuda/block_sparse/work_counter.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/warpgroup_mma.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>
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

int multiprocessors(const Tensor& x) { return device_properties(x.device()).multiprocessors; }

bool applies(const Tensor& x, int block, int64_t columns) {
  return x.dtype() == f32 &&
         tf32_warpgroup_applies(block, columns, device_properties(x.device()).capability);
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

/// Strips of a tile's block rows, times tiles of columns of all C.
int64_t items_of(const DsdProblem& p, const Tf32Tile& tile) {
  return ceil_div(p.block_rows(), tile.rows) * p.batch.numel() * ceil_div(p.n, tile.columns());
}

/// Of block rows of 32, by the tile.
StripCosts strip_costs(const DsdProblem& p, const Tf32Tile& tile, Device device) {
  const DsdGroups groups = dsd_groups(p, tile.rows, tile.columns(), device);
  return {.columns = groups.columns,
          .longest = groups.longest,
          .items = items_of(p, tile),
          .times = groups.times};
}

bool large_tiles_pay(const DsdProblem& p, Device device) {
  const int block = p.layout.block;
  const int workers = tf32_gathers_always() ? 1 : device_properties(device).multiprocessors;
  if (block == 32 && p.tf32 && !p.sums_heads()) {
    const Tf32Tile two = tf32_tile(block, false, false), four = tf32_tile(block, false, true);
    return quads_pay(strip_costs(p, two, device), strip_costs(p, four, device), workers);
  }
  return broad_tiles_pay(block, !p.tf32, p.block_rows(), p.batch.numel() * p.n, workers);
}

/// Launches the pieces of `split`, or where it has none `items`.
template <class Params>
void launch(const Tf32Kernel& k, Params& params, const BlockSparseEpilogue* epilogue, int64_t items,
            const DevicePieces& split, Stream stream) {
  static auto* const family = new jit::KernelFamily<Tf32Kernel>;
  const Tf32Tile tile = tile_of(k);
  const WorkCounter counter(stream, 2 + 2 * split.slots);
  Tensor partials;
  if (split.count > 0) {
    partials = Tensor::empty({split.slots, tile.n, tile.columns()}, f32, stream.device());
    params.split = {split.pieces, partials.data<float>(), counter.get() + 2};
    items = split.count;
  }
  params.next = counter.get();
  params.items = static_cast<int>(items);
  const int64_t most = device_properties(stream.device()).multiprocessors;
  const jit::Kernel& kernel = family->get(k, stream.device(), [&] {
    return tf32_source(k, epilogue ? &epilogue->expression : nullptr);
  });
  jit::launch(kernel,
              {.grid = dim3(static_cast<unsigned>(std::min(items, most))),
               .block = dim3(Tf32Tile::threads),
               .shared_bytes = tile.shared_bytes()},
              stream, params);
}

/// Which columns of which strip each CTA of sdd takes, and how items are cut.
struct SddWork {
  Tensor packed;  ///< SddShare, as i32 on the device
  const device::SddShare* work = nullptr;
  int works = 0;
  DevicePieces split;
  Milestone made;
};

/// At most `most` columns of a strip each, as even as can be.
std::vector<device::SddShare> list_shares(const BlockSparseStrips& strips, int most) {
  std::vector<device::SddShare> shares;
  for (int strip = 0; strip + 1 < static_cast<int>(strips.offsets.size()); ++strip) {
    const int length = strips.length(strip), pieces = (length + most - 1) / most;
    for (int i = 0; i < pieces; ++i) {
      const int begin = length * i / pieces, end = length * (i + 1) / pieces;
      device::SddShare share{};
      share.strip = strip;
      share.first = strips.offsets[static_cast<size_t>(strip)] + begin;
      share.count = end - begin;
      shares.push_back(share);
    }
  }
  return shares;
}

const SddWork& work_of(const SddProblem& p, const BlockSparseStrips& strips, const Tf32Tile& tile,
                       int64_t batch, int64_t stages, Device device) {
  const int gathered = tile.columns() / p.layout.block, parts = p.layout.block / tile.n;
  const uint64_t key = uint64_t{7} << 59 | static_cast<uint64_t>(tile.split) << 56 |
                       static_cast<uint64_t>(device.index()) << 50 |
                       static_cast<uint64_t>(batch) << 25 | static_cast<uint64_t>(stages);
  const auto& kept = p.pattern->derived<SddWork>(key, [&] {
    const std::vector<device::SddShare> shares = list_shares(strips, gathered);
    SddWork made;
    made.packed = upload(shares, device);
    made.work = reinterpret_cast<const device::SddShare*>(made.packed.data<int32_t>());
    made.works = static_cast<int>(shares.size());
    const int workers = device_properties(device).multiprocessors;
    const int64_t items = made.works * batch * parts;
    if (items <= int64_t{most_split_items} * workers)
      made.split = DevicePieces(
          split_work(std::vector<int32_t>(static_cast<size_t>(items), static_cast<int32_t>(stages)),
                     workers, tf32_sdd_costs(tile.split, tile.sums())),
          device);
    made.made = Milestone(current_stream(device));
    return made;
  });
  kept.made.wait(current_stream(device));
  return kept;
}

/// Fills in what an sdd is told of its operands, in boxes of so many lines; false where the copy
/// engine cannot address them.
bool describe_operands(const Tensor& a, const Tensor& b, const SddProblem& p, const Tf32Kernel& k,
                       int a_box, int b_box, device::WarpgroupTf32SddParams& params) {
  const Axes axes(p.batch, p.sum);
  const int heads = p.layout.heads;
  const int64_t m = int64_t{p.layout.rows} * k.block, n = int64_t{p.layout.cols} * k.block;
  const DenseMap a_map =
      rounded(sdd_map(a, k.a_along_k, p.k, m, k.a_along_k ? p.a.row : p.a.col, a_box, heads,
                      p.a_head, axes, p.batch, p.sum, 0, params.a_steps),
              k);
  const DenseMap b_map = sdd_map(b, k.b_along_k, p.k, n, k.b_along_k ? p.b.col : p.b.row, b_box,
                                 heads, p.b_head, axes, p.batch, p.sum, 1, params.b_steps);
  if (!a_map.fit || !b_map.fit) return false;
  params.a = a_map.encode("sdd");
  params.b = b_map.encode("sdd");
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.a_head = p.a_head != 0 && heads > 1;
  params.b_head = p.b_head != 0 && heads > 1;
  params.depth = static_cast<int>(p.k);
  params.blocks = p.layout.nnz;
  params.heads = heads;
  params.m = static_cast<int>(m);
  return true;
}

/// sdd of blocks of 16 and 32, where that is sooner done than on mma.sync.
bool gathered_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
                  const Tf32Kernel& k, Stream stream) {
  const Tf32SddExtent extent{.batch = p.batch.numel(),
                             .steps = p.sum.numel() * ceil_div(p.k, depth),
                             .split = k.split,
                             .a_along_k = k.a_along_k,
                             .b_along_k = k.b_along_k};
  device::WarpgroupTf32SddParams params{};
  if (!extent.fits() || !describe_operands(a, b, p, k, k.block, k.block, params)) return false;
  const Tf32SddSchedule& schedule = schedule_tf32_sdd(*p.pattern, extent, stream.device());
  const int64_t items = extent.batch * schedule.works;
  if (!schedule.pays || !fits_int(items)) return false;
  params.list = schedule.list;
  params.lists = list_memory(schedule.shares.packed, schedule.split.packed);
  params.work = schedule.shares.work;
  params.works = schedule.works;
  params.result = values.data<float>();
  launch(k, params, nullptr, items, schedule.split, stream);
  return true;
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
                if (block >= 32 && (!large || (block <= 64 && !split)) &&
                    (!gathered || block == 32))
                  all.push_back({false, block, split, large, gathered, a, b, c});
        }
  return all;
}

bool tf32_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
              Stream stream) {
  const int block = p.layout.block;
  const Axes axes(p.batch, p.sum);
  const int64_t m = int64_t{p.block_rows()} * block;
  if (!applies(b, block, p.n) || p.layout.nnz == 0 || !axes.fit(3) ||
      !axes.dense(p.batch, 2, m * p.n) || !fits_int(values.numel() / block) ||
      reinterpret_cast<uintptr_t>(c.data()) % 16 != 0)
    return false;
  const bool large = large_tiles_pay(p, b.device());
  const Tf32Tile tile = tf32_tile(block, !p.tf32, large);
  const int rows = tile.rows;
  if (rows == 2 && !strips_fill(items_of(p, tile), multiprocessors(b)) && !tf32_gathers_always())
    return false;
  const BlockSparseStrips& strips = dsd_strips(p, rows, tile.columns(), stream.device());
  const Tensor* const aside = staged_aside(p.epilogue);
  const Tf32Kernel k{.sampled = false,
                     .block = block,
                     .split = !p.tf32,
                     .large = large,
                     .gathered_rows = strips.gathered,
                     .a_along_k = !p.transposed,
                     .b_along_k = p.b.col != 1,
                     .c_by_columns = p.c.col != 1,
                     .staged = aside ? 2 : 1,
                     .epilogue = epilogue_key(p.epilogue)};
  const int lines = k.a_along_k ? tile.n / rows : depth;  // of a box
  DenseMap value_map = rounded(
      {values, k.a_along_k ? block : depth, values.numel() / block, block, depth, lines}, k);
  if (!k.a_along_k && block > depth) value_map.add(block / depth, depth, tile.n / depth);
  device::WarpgroupTf32DsdParams params{};
  const DsdWork work = describe_dsd(b, p, axes, strips, value_map,
                                    {.cols = tile.columns(),
                                     .depth = depth,
                                     .parts = std::max(1, block / tile.n),
                                     .b_along_k = k.b_along_k,
                                     .in_parts = k.split,
                                     .costs = split_costs(tf32_dsd_step(tile.split), tile.sums())},
                                    params);
  if (!work.schedule) return false;
  params.result = c.data<float>();
  if (aside) params.beside = aside->data<float>();
  params.result_step = k.c_by_columns ? p.c.col : p.c.row;
  params.result_batch = m * p.n;
  params.whole_quads = p.n % 4 == 0;
  const EpilogueLaunch epilogue(p.epilogue, !k.c_by_columns, {p.batch.numel(), p.n, m},
                                device::tf32_reduced_side, tile.n / rows, stream);
  params.epilogue = epilogue.arguments();
  launch(k, params, p.epilogue, work.items, work.schedule->split, stream);
  epilogue.reduce();
  return true;
}

bool tf32_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
              Stream stream) {
  const int block = p.layout.block;
  const Axes axes(p.batch, p.sum);
  const int64_t size = int64_t{p.layout.nnz} * block * block;
  if (a.dtype() != f32 || p.k == 0 || !axes.fit(2) || !axes.dense(p.batch, 2, size) ||
      !fits_int(values.numel() / block) || reinterpret_cast<uintptr_t>(values.data()) % 16 != 0)
    return false;
  const Tensor* const aside = staged_aside(p.epilogue);
  const Tf32Kernel k{.sampled = true,
                     .block = block,
                     .split = !p.tf32,
                     .a_along_k = p.a.col == 1,
                     .b_along_k = p.b.col != 1,
                     .staged = aside ? 2 : 1,
                     .epilogue = epilogue_key(p.epilogue)};
  if (tf32_gathers(block, device_properties(a.device()).capability))
    return !p.epilogue && p.layout.nnz > 0 && gathered_sdd(a, b, values, p, k, stream);
  if (!applies(a, block, int64_t{p.longest_row} * block)) return false;
  const Tf32Tile tile = tile_of(k);
  const SddExtent extent{p.batch.numel(), p.sum.numel() * ceil_div(p.k, depth), 0};
  device::WarpgroupTf32SddParams params{};
  if (!extent.fits() || !describe_operands(a, b, p, k, tile.n, block, params)) return false;
  const BlockSparseStrips& strips = strips_of(*p.pattern, false, 1, stream.device());
  const SddWork& work = work_of(p, strips, tile, extent.batch, extent.steps, stream.device());
  const int64_t items = extent.batch * work.works * (block / tile.n);
  if (!fits_int(items)) return false;
  params.list = strips.list;
  params.lists = list_memory(work.packed, strips.columns, work.split.packed);
  params.work = work.work;
  params.works = work.works;
  params.result = values.data<float>();
  if (aside) params.beside = aside->data<float>();
  const EpilogueLaunch epilogue(p.epilogue, true,
                                {extent.batch, block, int64_t{p.layout.nnz} * block},
                                device::tf32_reduced_side, tile.n, stream);
  params.epilogue = epilogue.arguments();
  launch(k, params, p.epilogue, items, work.split, stream);
  epilogue.reduce(p.layout);
  return true;
}

}  // namespace bs::cuda
