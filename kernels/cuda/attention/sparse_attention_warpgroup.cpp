#include <bs/kernels/cuda/attention/sparse_attention_lists.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/kernels/cuda/jit/warpgroup_mma.h>
#include <bs/kernels/cuda/work_counter.h>
#include <bs/kernels/distribution.h>
#include <bs/kernels/sparse_attention_check.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/made_on.h>
#include <bs/lib/cuda/tensor_map.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>

namespace bs::cuda {

namespace {

/// Lists of a layout on a device.
struct DeviceTiles {
  Tensor records, items;
  device::AttentionTiles list{};
  MadeOn made;
};

/// Which of a layout's lists.
struct TilesKey {
  AttentionTiling tiling;
  int device;
  bool operator==(const TilesKey&) const = default;
};

DeviceTiles tiles_of_host(const Layout& layout, const AttentionTiling& tiling, Stream stream) {
  const AttentionTileLists lists = attention_tile_lists(layout, tiling);
  DeviceTiles out;
  // A layout without blocks has no records, and an upload needs some.
  out.records =
      upload(lists.records.empty() ? std::vector<int>{0} : lists.records, stream.device());
  out.items = upload(lists.items, stream.device());
  out.list = {out.records.data<int32_t>(), out.items.data<int32_t>(), lists.heads, lists.tiles,
              lists.ahead};
  return out;
}

/// Of a layout that was made on the device, which the host does not wait for.
DeviceTiles tiles_of_device(const Layout& layout, const AttentionTiling& tiling, Stream stream) {
  const int tiles = static_cast<int>(ceil_div(layout.height(), tiling.rows()));
  const int64_t record = tiling.pieces(layout.block()) + tiling.groups;
  DeviceTiles out;
  out.records = Tensor::empty({std::max<int64_t>(layout.nnz(), 1) * record}, i32, stream.device());
  out.items = Tensor::empty({int64_t{layout.heads()} * tiles * 4}, i32, stream.device());
  list_tiles(layout.view(stream.device()), tiling, tiles, out.records.data<int32_t>(),
             out.items.data<int32_t>(), stream);
  out.list = {out.records.data<int32_t>(), out.items.data<int32_t>(), layout.heads(), tiles,
              attention_uncounted_ahead(tiles, 1)};
  return out;
}

Kept<DeviceTiles> tiles_of(const Layout& layout, const AttentionTiling& tiling, Stream stream) {
  const TilesKey key{tiling, stream.device().index()};
  return listed_on<DeviceTiles>(layout, key, stream, [&] {
    return layout.on_host() ? tiles_of_host(layout, tiling, stream)
                            : tiles_of_device(layout, tiling, stream);
  });
}

/// Whether the copy engine takes it, and stores of 16 bytes.
bool addressable(const Tensor& x) {
  bool fits = x.numel() > 0 && reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
  for (int axis = 0; axis < 3; ++axis)
    fits = fits && (x.size(axis) == 1 || (x.strides()[axis] > 0 && x.strides()[axis] % 8 == 0));
  return fits;
}

/// Boxes of 64 elements of `rows` rows of one head.
device::TensorMapWords map_of(const Tensor& x, int rows) {
  TiledTensor tiled{.element = x.dtype() == f16 ? TensorMapElement::f16 : TensorMapElement::bf16,
                    .address = x.data(),
                    .rank = 5,
                    .swizzle = TensorMapSwizzle::bytes_128};
  tiled.dims = {x.size(3), x.size(2), x.size(1), x.size(0), 1};
  const auto stride = [&](int axis) {  // of an axis of one element it may be anything
    return x.size(axis) == 1 ? int64_t{16} : x.strides()[axis] * 2;
  };
  tiled.strides = {0, stride(2), stride(1), stride(0), 16};
  tiled.box = {64, rows, 1, 1, 1};
  return std::bit_cast<device::TensorMapWords>(encode_tiled("sparse_attention", tiled));
}

/// Heads under way at a time, so that their keys and values stay in L2.
int window_of(const Tensor& k, const Tensor& v, int group, int batch_heads, Device device) {
  const int64_t bytes = 2 * k.size(2) * (k.size(3) + v.size(3));  // of a head
  const int64_t fit = std::max<int64_t>(1, device_properties(device).l2_bytes / 2 / bytes);
  return static_cast<int>(std::min<int64_t>(fit * group, batch_heads));
}

}  // namespace

device::AttentionTerms attention_terms(const SparseAttentionOptions& o, const AttentionGrid& grid,
                                       int64_t rows) {
  const bool tabled = o.relative_bias.defined();
  const int width = tabled ? static_cast<int>(o.relative_bias.size(1)) : 0;
  device::AttentionRows<const void> bias{};
  if (o.bias.defined())
    bias = {o.bias.data(), o.bias.strides()[0], o.bias.strides()[1], o.bias.strides()[2]};
  constexpr double most = std::numeric_limits<float>::max();  // infinity times 0 would be NaN
  return {.inner = static_cast<float>(o.softcap > 0 ? std::min(o.scale / o.softcap, most) : 0),
          .outer = static_cast<float>(o.softcap * 1.4426950408889634),
          .slopes = o.alibi_slopes.defined() ? o.alibi_slopes.data<float>() : nullptr,
          .sinks = o.sinks.defined() ? o.sinks.data<float>() : nullptr,
          .origin = static_cast<int>(o.offset),
          .dropout = {PhiloxKeys<>(o.random.seed), o.random.offset,
                      reinterpret_cast<const unsigned long long*>(o.random.shift),
                      static_cast<unsigned>(threshold(o.dropout)),
                      static_cast<float>(1 / (1 - o.dropout)), static_cast<int>(rows), grid.begins},
          .bits = grid.bits,
          .table = tabled ? o.relative_bias.data<float>() : nullptr,
          .table_reach = width / 2,
          .table_head = tabled && o.relative_bias.size(0) > 1 ? width : 0,
          .bias = bias,
          .last_query = grid.queries - 1,
          .last_key = grid.keys - 1};
}

jit::Source warpgroup_forward_source(const WarpgroupForward& k) {
  const std::string name =
      format("attention_forward_{}_d{}{}_b{}_g{}_c{}_s{}_q{}{}{}{}", to_string(k.dtype), k.dim,
             k.value_dim != k.dim ? format("v{}", k.value_dim) : "", k.block, k.groups, k.cols,
             k.slots, k.query_places, k.turns ? "_turns" : "", k.banded ? "_band" : "",
             k.rules != 0 ? format("_r{}", k.rules) : "");
  std::string code = "#include <bs/kernels/cuda/device/attention/warpgroup_forward.cuh>\n\n";
  code += "using namespace bs::cuda::device;\n";
  code += "namespace keys {\n" + warpgroup_mma(k.cols, k.dtype, true, true) + "}\n";
  code += "namespace values {\n" + warpgroup_mma_left(k.value_dim, k.dtype, false) + "}\n";
  code += format(
      "struct Config {\n"
      "  using Element = {};\n"
      "  using KeyMma = keys::Mma;\n"
      "  using ValueMma = values::Mma;\n"
      "  static constexpr int dim = {}, value_dim = {}, block = {};\n"
      "  static constexpr int groups = {}, cols = {}, slots = {}, query_places = {};\n"
      "  static constexpr bool turns = {}, banded = {};\n"
      "  static constexpr unsigned rules = {};\n"
      "};\n"
      "using Kernel = AttentionForwardKernel<Config>;\n"
      "static_assert(Kernel::threads == {} && Kernel::shared_bytes <= {});\n\n"
      "extern \"C\" __global__ void __launch_bounds__(Kernel::threads, 1)\n"
      "    {}(const __grid_constant__ WarpgroupAttentionParams params) {\n"
      "  Kernel::run(params);\n}\n",
      device_type_name(k.dtype), k.dim, k.value_dim, k.block, k.groups, k.cols, k.slots,
      k.query_places, k.turns, k.banded, k.rules, k.threads(), k.shared_bytes(), name);
  return {name, code, device_headers()};
}

std::vector<WarpgroupForward> all_warpgroup_forward_kernels() {
  std::vector<WarpgroupForward> all;
  for (const DType dtype : {f16, bf16})
    for (const int head_dim : {64, 128, 192, 256})
      for (const int value_dim : {64, 128, 192, 256})
        for (const int block : {16, 32, 64, 128})
          for (const AttentionTraits& traits : {AttentionTraits{}, AttentionTraits{.banded = true},
                                                AttentionTraits{.pinned = true}})
            all.push_back(
                warpgroup_forward({dtype, head_dim, value_dim, block, 90, 227 * 1024, traits}));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

WarpgroupForward warpgroup_forward_for(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const Layout& layout, const Tensor& out,
                                       const AttentionTraits& traits) {
  const DeviceProperties& gpu = device_properties(q.device());
  const int64_t tiles = (layout.height() + 63) / 64 * q.size(0) * q.size(1);
  const int64_t records = (layout.nnz() + tiles) * (layout.block() > 64 ? 4 : 1);
  const bool listed = layout.on_host() || lists_tiles({}, layout);
  if (!listed || !addressable(q) || !addressable(k) || !addressable(v) || !addressable(out) ||
      tiles > INT32_MAX || records > INT32_MAX ||
      std::max(layout.height(), layout.width()) > INT32_MAX / 2)
    return {};
  const WarpgroupForward kernel = warpgroup_forward({.dtype = q.dtype(),
                                                     .head_dim = static_cast<int>(q.size(3)),
                                                     .value_dim = static_cast<int>(v.size(3)),
                                                     .block = layout.block(),
                                                     .capability = gpu.capability,
                                                     .shared_bytes = gpu.shared_memory_optin,
                                                     .traits = traits});
  // The device lists whole blocks for tiles of 128 queries.
  return layout.on_host() || kernel.cols == 128 ? kernel : WarpgroupForward{};
}

Tensor launch_warpgroup_forward(const WarpgroupForward& kernel, const Tensor& q, const Tensor& k,
                                const Tensor& v, const AttentionGrid& grid,
                                const SparseAttentionResult& to,
                                const SparseAttentionOptions& options, Stream stream) {
  const auto& [out, lse] = to;
  static auto* const family = new jit::KernelFamily<WarpgroupForward>;
  const detail::AttentionBand band = detail::attention_band(options);
  const AttentionReach reach{static_cast<int>(band.first), static_cast<int>(band.last)};
  const AttentionTiling tiling{kernel.groups, kernel.cols, reach.first, reach.last};
  const Kept<DeviceTiles> tiles = tiles_of(grid.layout, tiling, stream);
  Tensor odd = Tensor::empty({1}, i32, stream.device());
  const int piece = tiling.piece(grid.layout.block());
  const int group = static_cast<int>(q.size(1) / k.size(1));
  const int batch_heads = static_cast<int>(q.size(0) * q.size(1));
  const WorkCounter counter(stream, 3);
  const device::WarpgroupAttentionParams params{
      .q = map_of(q, 64),
      .k = map_of(k, piece),
      .v = map_of(v, piece),
      .out = map_of(out, 64),
      .list = tiles->list,
      .out_rows = {out.data(), out.strides()[0], out.strides()[1], out.strides()[2]},
      .lse = lse.data<float>(),
      .lse_head = lse.size(2),
      .seen = grid.seen,
      .next = counter.get(),
      .odd = odd.data<int32_t>(),
      .items = batch_heads * tiles->list.tiles,
      .heads = static_cast<int>(q.size(1)),
      .group = group,
      .batch_heads = batch_heads,
      .window = window_of(k, v, group, batch_heads, stream.device()),
      .places = grid.places,
      .keys = grid.keys,
      .value_dim = static_cast<int>(v.size(3)),
      .scale = static_cast<float>((options.softcap > 0 ? options.softcap : options.scale) *
                                  1.4426950408889634),
      .reach = reach,
      .terms = attention_terms(options, grid, lse.size(2))};
  const jit::Kernel& compiled =
      family->get(kernel, stream.device(), [&] { return warpgroup_forward_source(kernel); });
  const int ctas = std::min(params.items, device_properties(stream.device()).multiprocessors);
  jit::launch(compiled,
              {.grid = dim3(static_cast<unsigned>(ctas)),
               .block = dim3(static_cast<unsigned>(kernel.threads())),
               .shared_bytes = kernel.shared_bytes()},
              stream, params);
  return odd;
}

}  // namespace bs::cuda
