#include <bs/kernels/cuda/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/block_sparse_schedule.h>
#include <bs/kernels/cuda/device_headers.h>
#include <bs/kernels/cuda/warpgroup_mma.h>
#include <bs/kernels/cuda/warpgroup_operands.h>
#include <bs/kernels/cuda/work_counter.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>
#include <bs/kernels/cuda/device/warpgroup_tf32_problem.cuh>

#include <utility>

namespace bs::cuda {

namespace {

constexpr int depth = 32;  // of a stage

const char* word(bool value) { return value ? "true" : "false"; }

Tf32Tile tile_of(const Tf32Kernel& k) { return tf32_tile(k.block, k.split, k.broad); }

int multiprocessors(const Tensor& x) { return device_properties(x.device()).multiprocessors; }

bool applies(const Tensor& x, int block, int64_t columns, const BlockSparseEpilogue* epilogue) {
  return x.dtype() == f32 && !epilogue &&
         tf32_warpgroup_applies(block, columns, device_properties(x.device()).capability);
}

/// The narrow operand, which the copy engine rounds where it is not split.
DenseMap rounded(DenseMap map, const Tf32Kernel& k) {
  if (!k.split) map.tensor.element = TensorMapElement::tf32;
  return map;
}

/// An operand of sdd, in boxes of `box` lines along the depth or, in pieces, of as many across it.
template <int N, int M>
DenseMap sdd_map(const Tensor& x, bool along_k, int64_t k, int64_t lines, int64_t line_stride,
                 int box, int heads, int64_t head_stride, const Axes& axes,
                 const StridedLoop<N>& over, const StridedLoop<M>& summed, int of,
                 device::BatchSteps& steps) {
  DenseMap map = along_k ? DenseMap(x, k, lines, line_stride, depth, box)
                         : DenseMap(x, depth, k, line_stride, depth, depth);
  const bool has_heads = head_stride != 0 && heads > 1;
  if (!along_k) map.add(lines / depth, depth, box / depth);
  if (along_k || has_heads) map.add(has_heads ? heads : 1, head_stride);
  map.add_axes(axes, axes.strides(over, of, summed, of), along_k || !has_heads ? 2 : 1, steps);
  return map;
}

/// Launches the pieces of `split`, or where it has none `items`.
template <class Params>
void launch(const Tf32Kernel& k, Params& params, int64_t items, const DevicePieces& split,
            Stream stream) {
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
  const jit::Kernel& kernel = family->get(k, stream.device(), [&] { return tf32_source(k); });
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
    static_assert(sizeof(device::SddShare) % sizeof(int32_t) == 0);
    SddWork made;
    made.packed = upload({reinterpret_cast<const int32_t*>(shares.data()),
                          shares.size() * (sizeof(device::SddShare) / sizeof(int32_t))},
                         device);
    made.work = reinterpret_cast<const device::SddShare*>(made.packed.data<int32_t>());
    made.works = static_cast<int>(shares.size());
    const int workers = device_properties(device).multiprocessors;
    const int64_t items = made.works * batch * parts;
    if (items <= int64_t{most_split_items} * workers)
      made.split = DevicePieces(
          split_work(std::vector<int32_t>(static_cast<size_t>(items), static_cast<int32_t>(stages)),
                     workers),
          device);
    made.made = Milestone(current_stream(device));
    return made;
  });
  kept.made.wait(current_stream(device));
  return kept;
}

}  // namespace

jit::Source tf32_source(const Tf32Kernel& k) {
  const Tf32Tile tile = tile_of(k);
  const char* const op = k.sampled ? "sdd" : "dsd";
  const char* const type = k.sampled ? "WarpgroupTf32Sdd" : "WarpgroupTf32Dsd";
  const std::string name = format("{}_wgmma_{}_b{}_{}{}{}_n{}", op, k.split ? "f32" : "tf32",
                                  k.block, k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n",
                                  k.c_by_columns ? "_t" : "", tile.columns());
  std::string code = format("#include <bs/kernels/cuda/device/warpgroup_tf32_{}.cuh>\n\n", op);
  code += warpgroup_mma_tf32(tile.n);
  code += format(
      "struct Config {\n  using Mma = ::Mma;\n  static constexpr int block = {}, n = {}, wide = "
      "{}, stages = {};\n",
      k.block, tile.n, tile.wide, tile.stages);
  code += format("  static constexpr bool split = {}, c_by_columns = {};\n", word(k.split),
                 word(k.c_by_columns));
  code += format("  static constexpr bool narrow_along_k = {}, wide_along_k = {};\n};\n",
                 word(k.a_along_k), word(k.b_along_k));
  code += format("using Kernel = bs::cuda::device::{}<Config>;\n", type);
  code += format("static_assert(Kernel::threads == {} && Kernel::shared_bytes <= {});\n\n",
                 Tf32Tile::threads, tile.shared_bytes());
  code += format(
      "extern \"C\" __global__ void __launch_bounds__(Kernel::threads, 1)\n"
      "    {}(const __grid_constant__ bs::cuda::device::{}Params params) {\n"
      "  Kernel::run(params);\n}\n",
      name, type);
  return {name, code, device_headers()};
}

std::vector<Tf32Kernel> all_tf32_kernels() {
  std::vector<Tf32Kernel> all;
  for (const int block : {64, 128})
    for (const bool split : {false, true})
      for (const bool a : {false, true})
        for (const bool b : {false, true}) {
          all.push_back({true, block, split, false, a, b, false});
          for (const bool c : {false, true}) {
            all.push_back({false, block, split, false, a, b, c});
            if (block == 64 && !split) all.push_back({false, block, split, true, a, b, c});
          }
        }
  return all;
}

bool tf32_dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
              Stream stream) {
  const int block = p.layout.block;
  const Axes axes(p.batch, p.sum);
  const int64_t m = int64_t{p.block_rows()} * block;
  if (!applies(b, block, p.n, p.epilogue) || p.layout.nnz == 0 || !axes.fit(3) ||
      !axes.dense(p.batch, 2, m * p.n) || !fits_int(values.numel() / block) ||
      reinterpret_cast<uintptr_t>(c.data()) % 16 != 0)
    return false;
  const BlockSparseStrips& strips = strips_of(*p.pattern, p.transposed, 1, stream.device());
  const Tf32Kernel k{.sampled = false,
                     .block = block,
                     .split = !p.tf32,
                     .broad = broad_tiles_pay(block, !p.tf32, strips.list.strips,
                                              p.batch.numel() * p.n, multiprocessors(b)),
                     .a_along_k = !p.transposed,
                     .b_along_k = p.b.col != 1,
                     .c_by_columns = p.c.col != 1};
  const Tf32Tile tile = tile_of(k);
  const std::array<int64_t, 3> b_strides = axes.strides(p.batch, 1, p.sum, 1);
  device::WarpgroupTf32DsdParams params{};
  const bool pieces = !k.b_along_k && p.n % depth == 0 && b_strides[2] == 0;
  DenseMap b_map = k.b_along_k
                       ? DenseMap(b, p.k(), p.n, p.b.col, depth, std::min(256, tile.columns()))
                       : DenseMap(b, pieces ? depth : p.n, p.k(), p.b.row, depth, depth);
  if (pieces) b_map.add(p.n / depth, depth, tile.columns() / depth);
  b_map.add_axes(axes, b_strides, pieces ? 2 : 3, params.b_steps);
  DenseMap value_map = rounded({values, k.a_along_k ? block : depth, values.numel() / block, block,
                                depth, k.a_along_k ? tile.n : depth},
                               k);
  if (!k.a_along_k) value_map.add(block / depth, depth, tile.n / depth);
  const int64_t tiles = ceil_div(p.n, tile.columns()) * (block / tile.n);
  const DsdExtent extent{.transposed = p.transposed,
                         .cols = tile.columns(),
                         .columns = p.batch.numel() * tiles,
                         .products = p.sum.numel(),
                         .tiles = tiles,
                         .sums_heads = p.sum.offset(2, p.sum.numel() - 1) != 0,
                         .element = 4};
  const int64_t items = extent.columns * strips.list.strips;
  if (!b_map.fit || !value_map.fit || !fits_int(items) || !extent.fits()) return false;

  const DsdSchedule& schedule = schedule_dsd(*p.pattern, strips, extent, stream.device());
  params.value_steps = steps_of(axes.strides(p.batch, 0, p.sum, 0), block * block);
  params.head_steps = steps_of(axes.strides(p.batch, 3, p.sum, 2), 1);
  params.values = value_map.encode("dsd");
  params.b = b_map.encode("dsd");
  params.m = static_cast<int>(m);
  params.n = static_cast<int>(p.n);
  params.list = strips.list;
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.b_pieces = pieces ? 0 : tile.columns() / depth;
  params.tiles = static_cast<int>(tiles);
  params.columns = static_cast<int>(extent.columns);
  params.order = schedule.order;
  params.result = c.data<float>();
  params.result_step = k.c_by_columns ? p.c.col : p.c.row;
  params.result_batch = m * p.n;
  params.whole_quads = p.n % 4 == 0;
  launch(k, params, items, schedule.split, stream);
  return true;
}

bool tf32_sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
              Stream stream) {
  const int block = p.layout.block;
  const Axes axes(p.batch, p.sum);
  const int64_t size = int64_t{p.layout.nnz} * block * block;
  if (!applies(a, block, int64_t{p.longest_row} * block, p.epilogue) || p.k == 0 || !axes.fit(2) ||
      !axes.dense(p.batch, 2, size) || !fits_int(values.numel() / block) ||
      reinterpret_cast<uintptr_t>(values.data()) % 16 != 0)
    return false;
  const Tf32Kernel k{.sampled = true,
                     .block = block,
                     .split = !p.tf32,
                     .a_along_k = p.a.col == 1,
                     .b_along_k = p.b.col != 1};
  const Tf32Tile tile = tile_of(k);
  const int64_t m = int64_t{p.layout.rows} * block, n = int64_t{p.layout.cols} * block;
  const SddExtent extent{p.batch.numel(), p.sum.numel() * ceil_div(p.k, depth), n};
  if (!extent.fits()) return false;
  device::WarpgroupTf32SddParams params{};
  const int heads = p.layout.heads;
  const DenseMap a_map =
      rounded(sdd_map(a, k.a_along_k, p.k, m, k.a_along_k ? p.a.row : p.a.col, tile.n, heads,
                      p.a_head, axes, p.batch, p.sum, 0, params.a_steps),
              k);
  const DenseMap b_map = sdd_map(b, k.b_along_k, p.k, n, k.b_along_k ? p.b.col : p.b.row, block,
                                 heads, p.b_head, axes, p.batch, p.sum, 1, params.b_steps);
  const BlockSparseStrips& strips = strips_of(*p.pattern, false, 1, stream.device());
  const SddWork& work = work_of(p, strips, tile, extent.batch, extent.steps, stream.device());
  const int64_t items = extent.batch * work.works * (block / tile.n);
  if (!a_map.fit || !b_map.fit || !fits_int(items)) return false;

  params.a = a_map.encode("sdd");
  params.b = b_map.encode("sdd");
  params.list = strips.list;
  params.work = work.work;
  params.works = work.works;
  params.batch = axes.batch;
  params.sum = axes.sum;
  params.a_head = p.a_head != 0 && heads > 1;
  params.b_head = p.b_head != 0 && heads > 1;
  params.depth = static_cast<int>(p.k);
  params.blocks = p.layout.nnz;
  params.heads = heads;
  params.m = static_cast<int>(m);
  params.result = values.data<float>();
  launch(k, params, items, work.split, stream);
  return true;
}

}  // namespace bs::cuda
