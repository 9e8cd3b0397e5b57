#include <bs/kernels/cuda/attention/sparse_attention_stored_scores.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup_backward.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_strips_fill.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_operands.h>
#include <bs/kernels/cuda/work_counter.h>
#include <bs/kernels/sparse_attention_check.h>
#include <bs/kernels/where.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_problem.cuh>

#include <algorithm>
#include <array>
#include <cstdint>

namespace bs::cuda {

namespace {

using Kernel = AttentionBackwardKernel;
using Pass = Kernel::Pass;

constexpr const char* op = "sparse_attention_backward";

/// A tensor [batch, heads, rows, head_dim] in boxes of 64 columns.
DenseMap rows_map(const Tensor& x, int box_rows) {
  const auto& strides = x.strides();
  DenseMap map(x, x.size(3), x.size(2), strides[2], 64, box_rows);
  map.add(x.size(1), strides[1]);
  map.add(x.size(0), strides[0]);
  map.add(1, 0);
  for (int axis = 0; axis < 3; ++axis)
    map.fit = map.fit && (x.size(axis) == 1 || strides[axis] > 0);
  return map;
}

device::AttentionRows<void> rows_of(const Tensor& x) {
  return {x.data(), x.strides()[0], x.strides()[1], x.strides()[2]};
}

/// Gradients of scores in boxes of what is written at a time, `rows` of a block or of blocks.
DenseMap values_map(const Tensor& x, int block, int rows) {
  return {x, block, x.numel() / block, block, std::min(block, 64), rows};
}

/// A problem as the kernels see it.
struct Backward : AttentionBackwardCall {
  const Layout& layout = grid.layout;

  int group() const { return static_cast<int>(q.size(1) / k.size(1)); }
  /// Blocks of the heads before head `head` of k, over the batch. The host needs the layout for
  /// what is no multiple of the layout's heads.
  int64_t values_before(int64_t head) const {
    const int64_t of_q = head * group();
    int64_t blocks = of_q / layout.heads() * layout.nnz();
    for (int64_t h = 0; h < of_q % layout.heads(); ++h) blocks += layout.nnz(static_cast<int>(h));
    return blocks;
  }
  int64_t kv_heads() const { return k.size(0) * k.size(1); }

  /// Blocks of the heads that share one of k and v, of the fullest.
  int64_t fullest() const {
    if (layout.heads() == 1) return group() * layout.nnz();
    int64_t most = 0;
    for (int h = 0; h < layout.heads(); h += group()) {
      int64_t blocks = 0;
      for (int of = h; of < h + group(); ++of) blocks += layout.nnz(of);
      most = std::max(most, blocks);
    }
    return most;
  }

  bool alike() const {
    if (layout.block() >= 64 || !layout.on_host()) return false;
    const auto entries = [&](int keys) {
      const StripShape shape{.transposed = true, .side = keys / layout.block()};
      return int64_t{strips_of(layout, shape)->offsets.back()};
    };
    return attention_columns_alike(entries(64), entries(128));
  }

  AttentionBackwardProblem problem() const {
    const cuda::DeviceProperties& gpu = device_properties(q.device());
    const bool counted = layout.heads() == 1 || layout.on_host();
    return {.element = static_cast<int>(size_of(q.dtype())),
            .capability = gpu.capability,
            .shared_bytes = gpu.shared_memory_optin,
            .multiprocessors = gpu.multiprocessors,
            .block = layout.block(),
            .head_dim = static_cast<int>(q.size(3)),
            .value_dim = static_cast<int>(v.size(3)),
            .traits = traits,
            .kv_heads = kv_heads(),
            .head_blocks = counted ? fullest() : values_before(kv_heads()),
            .together = !counted,
            .alike = alike()};
  }

  device::AttentionReach reach() const {
    const detail::AttentionBand band = detail::attention_band(options);
    return {static_cast<int>(band.first), static_cast<int>(band.last)};
  }

  device::WarpgroupAttention common() const {
    device::WarpgroupAttention all{};
    all.heads = static_cast<int>(q.size(1));
    all.group = group();
    all.kv_heads = static_cast<int>(k.size(1));
    all.queries = grid.queries;
    all.keys = grid.keys;
    all.head_dim = static_cast<int>(q.size(3));
    all.places = grid.places;
    all.layout_heads = layout.heads();
    all.numbers = static_cast<int>(layout.height());
    all.reach = reach();
    all.scale = static_cast<float>(options.scale);
    all.log2_scale = all.scale * 1.4426950408889634F;
    const bool of_batch = layout.heads() <= q.size(1);  // layouts of all entries number theirs
    all.values.head = layout.heads() == 1 ? layout.nnz() : 0;
    all.values.batch = of_batch ? q.size(1) / layout.heads() * layout.nnz() : 0;
    return all;
  }
};

/// log_sums and means of all queries, and again of the queries of whole blocks; and sets `odd`
/// where one is not finite.
void launch_numbers(const Backward& b, const Tensor& whole_log_sums, const Tensor& whole_means,
                    const Tensor& odd) {
  static auto* const family = new jit::KernelFamily<AttentionNumbersKernel>;
  const auto rows = [](const Tensor& x) {
    return device::AttentionRows<const void>{x.data(), x.strides()[0], x.strides()[1],
                                             x.strides()[2]};
  };
  device::AttentionBackwardArguments<void, void> arguments{};
  arguments.problem.heads = static_cast<int>(b.q.size(1));
  arguments.problem.queries = static_cast<int>(b.q.size(2));
  arguments.problem.value_dim = static_cast<int>(b.v.size(3));
  arguments.out = rows(b.forward.out);
  arguments.dout = rows(b.dout);
  arguments.lse = b.forward.lse.data();
  arguments.log_sums = b.log_sums.data();
  arguments.means = b.means.data();
  constexpr unsigned of_cta = 256;
  const int64_t total = whole_log_sums.numel();
  const int64_t width = b.v.size(3);
  const AttentionNumbersKernel k{b.q.dtype(), width <= 64 ? 8 : width <= 128 ? 16 : 32};
  const int64_t ctas = ceil_div(total * k.lanes, of_cta);
  const jit::Kernel& kernel =
      family->get(k, b.stream.device(), [&] { return attention_numbers_warpgroup_source(k); });
  jit::launch(kernel, {.grid = dim3(static_cast<unsigned>(ctas)), .block = dim3(of_cta)}, b.stream,
              arguments, b.grid.places, static_cast<unsigned>(total),
              static_cast<unsigned>(b.layout.height()), whole_log_sums.data<float>(),
              whole_means.data<float>(), odd.data<int32_t>());
}

/// Of `items` that the strips of each head are, for `workers` of a CTA.
template <class Params>
void launch(const Kernel& k, Params& params, int64_t items, int workers, Stream stream) {
  static auto* const family = new jit::KernelFamily<Kernel>;
  const WorkCounter counter(stream);
  params.problem.next = counter.get();
  if (items == 0) return;
  const int64_t ctas = std::min<int64_t>(ceil_div(items, workers),
                                         device_properties(stream.device()).multiprocessors);
  const jit::Kernel& kernel =
      family->get(k, stream.device(), [&] { return attention_backward_source(k); });
  jit::launch(kernel,
              {.grid = dim3(static_cast<unsigned>(ctas)),
               .block = dim3(attention_backward_threads),
               .shared_bytes = k.shared_bytes(),
               .programmatic = true},
              stream, params);
}

/// Whether strips of both kinds can be listed, by the host or the device.
bool lists_both(const Layout& layout) {
  return layout.on_host() || (counts_strips(layout, true) && counts_strips(layout, false));
}

/// Says in which order `workers` take the strips of `heads` heads.
void order_strips(device::WarpgroupAttention& problem, const Layout& layout,
                  const StripShape& shape, int64_t heads, int64_t workers) {
  if (!layout.on_host()) {
    const int rows = shape.transposed ? layout.cols() : layout.rows();
    problem.long_strips = attention_uncounted_ahead(rows, shape.side);
    return;
  }
  const Kept<Strips> strips = strips_of(layout, shape);
  const AttentionStrips of{strips->offsets, strips->order, strips->count};
  problem.long_strips = attention_long_strips(of);
  problem.short_strips = attention_short_strips(of, problem.long_strips, heads, workers);
}

/// Heads [first, first + count) of k and v, over the batch.
void launch_heads(device::WarpgroupKeyGradientParams& keys,
                  device::WarpgroupQueryGradientParams& queries, const Kernel& key_kernel,
                  const Kernel& query_kernel, const Backward& b, int64_t first, int64_t count) {
  const int group = b.group();
  keys.problem.values.first = queries.problem.values.first = b.values_before(first);
  keys.problem.first_head = static_cast<int>(first);
  keys.problem.head_count = static_cast<int>(count);
  queries.problem.first_head = static_cast<int>(first * group);
  queries.problem.head_count = static_cast<int>(count * group);
  const int block = b.layout.block(), strip = key_kernel.strip;
  const int64_t key_items = count * keys.list.strips * std::max(block / strip, 1);
  launch(key_kernel, keys, key_items, attention_key_teams(strip, key_kernel.paired), b.stream);
  launch(query_kernel, queries, count * group * queries.list.strips, 1, b.stream);
  add_stored_scores(b.gradients, b.options, b.grid, queries.problem, queries.blocks, b.q.dtype(),
                    b.stream);
}

/// All heads, as many at a time as the plan says.
void launch_passes(const Backward& b, const AttentionBackwardPlan& plan,
                   device::WarpgroupKeyGradientParams& keys,
                   device::WarpgroupQueryGradientParams& queries) {
  const DType dtype = b.q.dtype();
  const int block = b.layout.block();
  const Kernel key_kernel{.pass = Pass::key_gradient,
                          .dtype = dtype,
                          .dim = plan.dim,
                          .block = block,
                          .stages = plan.key_stages,
                          .value_dim = plan.value_dim,
                          .banded = plan.key_banded,
                          .rules = plan.rules,
                          .paired = plan.paired,
                          .strip = plan.strip};
  const Kernel query_kernel{.pass = Pass::query_gradient,
                            .dtype = dtype,
                            .dim = plan.dim,
                            .block = block,
                            .stages = plan.query_stages,
                            .banded = plan.query_banded};
  for (int64_t first = 0; first < plan.kv_heads; first += plan.heads)
    launch_heads(keys, queries, key_kernel, query_kernel, b, first,
                 std::min(plan.heads, plan.kv_heads - first));
}

/// Blocks of the heads that are worked on at a time, at most.
int64_t most_values(const Backward& b, const AttentionBackwardPlan& plan) {
  int64_t values = 1;
  for (int64_t first = 0; first < plan.kv_heads; first += plan.heads)
    values = std::max(values, b.values_before(std::min(plan.kv_heads, first + plan.heads)) -
                                  b.values_before(first));
  return values;
}

/// What the copy engine reads and writes: q, dout, k, v, k of which padding is not shown, dk, dv,
/// dq. In boxes of 64 rows there are q, dout and that k too.
using Maps = std::array<DenseMap, 11>;
Maps maps_of(const Backward& b, const Tensor& shown, int side, int key_rows) {
  return {rows_map(b.q, side),          rows_map(b.dout, side),       rows_map(b.k, key_rows),
          rows_map(b.v, key_rows),      rows_map(shown, side),        rows_map(b.gradients.dk, 64),
          rows_map(b.gradients.dv, 64), rows_map(b.gradients.dq, 64), rows_map(b.q, 64),
          rows_map(b.dout, 64),         rows_map(shown, 64)};
}

/// Gradients of scores of padding are zero, but so need not be its keys.
Tensor shown_keys(const Backward& b) {
  const Tensor& mask = b.options.key_padding_mask;
  return mask.defined() ? where(mask.unsqueeze(1).unsqueeze(3), b.k, 0.0) : b.k;
}

/// Without lists and numbers.
device::WarpgroupKeyGradientParams key_params(const Backward& b, const Maps& maps,
                                              const Tensor& ds) {
  const int block = b.layout.block();
  return {.q = maps[0].encode(op),
          .dout = maps[1].encode(op),
          .k = maps[2].encode(op),
          .v = maps[3].encode(op),
          .ds = values_map(ds, block, std::min(block, 64)).encode(op),
          .q_row = maps[8].encode(op),
          .dout_row = maps[9].encode(op),
          .ds_row = values_map(ds, block, 64).encode(op),
          .dk = maps[5].encode(op),
          .dv = maps[6].encode(op),
          .dk_rows = rows_of(b.gradients.dk),
          .dv_rows = rows_of(b.gradients.dv),
          .list = {},
          .problem = b.common(),
          .log_sums = nullptr,
          .means = nullptr,
          .seen = b.grid.seen,
          .terms = attention_terms(b.options, b.grid, b.q.size(2))};
}
/// Likewise.
device::WarpgroupQueryGradientParams query_params(const Backward& b, const Maps& maps,
                                                  const Tensor& ds) {
  const int block = b.layout.block();
  return {.ds = values_map(ds, block, std::min(block, 64)).encode(op),
          .k = maps[4].encode(op),
          .dq = maps[7].encode(op),
          .k_row = maps[10].encode(op),
          .dq_rows = rows_of(b.gradients.dq),
          .blocks = ds.data(),
          .list = {},
          .problem = b.common()};
}

}  // namespace

Tensor sparse_attention_warpgroup_backward(const AttentionBackwardCall& call) {
  const Backward b{call};
  const Tensor &q = b.q, &k = b.k;
  const Layout& layout = b.layout;
  const Stream stream = b.stream;
  const AttentionBackwardPlan plan = attention_backward_plan(b.problem());
  if (!plan.warpgroup || plan.heads == 0 || q.numel() == 0 || k.numel() == 0) return {};
  if (!lists_both(layout)) return {};
  const int64_t numbers = q.size(0) * q.size(1) * layout.height();
  if (numbers > UINT32_MAX / 32) return {};  // threads that find them
  const Device device = stream.device();
  const int block = layout.block();
  const Tensor shown = shown_keys(b);
  const Maps maps = maps_of(b, shown, std::min(block, 64), plan.strip);
  for (const DenseMap& map : maps)
    if (!map.fit) return {};

  const Tensor ds = Tensor::empty({most_values(b, plan), block, block}, q.dtype(), device);
  Tensor odd = Tensor::empty({1}, i32, device);
  fill_zero(odd.data(), odd.bytes(), stream);
  // The copy engine takes them by whole blocks.
  const bool whole = q.size(2) == layout.height();
  const Shape of_whole{q.size(0), q.size(1), layout.height()};
  const Tensor whole_log_sums = whole ? b.log_sums : Tensor::empty(of_whole, f32, device);
  const Tensor whole_means = whole ? b.means : Tensor::empty(of_whole, f32, device);
  const StripShape by_key{.transposed = true, .side = std::max(1, plan.strip / block)},
      by_query{.side = 128 / block};
  const Kept<DeviceStrips> key_list = device_strips(layout, by_key, stream),
                           query_list = device_strips(layout, by_query, stream);
  device::WarpgroupKeyGradientParams keys = key_params(b, maps, ds);
  device::WarpgroupQueryGradientParams queries = query_params(b, maps, ds);
  keys.list = key_list->list;
  queries.list = query_list->list;
  keys.log_sums = whole_log_sums.data<float>();
  keys.means = whole_means.data<float>();
  const int64_t ctas = device_properties(device).multiprocessors;
  order_strips(keys.problem, layout, by_key, plan.heads,
               ctas * attention_key_teams(plan.strip, plan.paired));
  order_strips(queries.problem, layout, by_query, plan.heads * b.group(), ctas);
  keys.problem.odd = queries.problem.odd = odd.data<int32_t>();
  launch_numbers(b, whole_log_sums, whole_means, odd);
  launch_passes(b, plan, keys, queries);
  return odd;
}

}  // namespace bs::cuda
