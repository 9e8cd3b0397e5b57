#include <bs/kernels/cuda/block_sparse/block_sparse_candidates.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_strips_fill.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <bs/kernels/cuda/gpu/gpu_measure.h>
#include <bs/kernels/cuda/gpu/tuned.h>
#include <bs/kernels/cuda/gpu/work_time.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/integers.h>

#include <utility>

namespace bs::cuda {

DevicePieces::DevicePieces(const WorkPieces& work, Device device)
    : count(static_cast<int>(work.pieces.size())), slots(work.slots) {
  if (count == 0) return;
  packed = upload(work.pieces, device);
  pieces = reinterpret_cast<const device::WorkPiece*>(packed.data<int32_t>());
}

DeviceStrips::DeviceStrips(const Layout& layout, const Strips& strips, Device device)
    : gathered(strips.shape.gathered) {
  const int64_t entries = strips.offsets.back();
  const int side = strips.shape.side;
  std::vector<int32_t> all = strips.offsets;
  all.insert(all.end(), strips.order.begin(), strips.order.end());
  all.insert(all.end(), strips.rows.begin(), strips.rows.end());
  lists = upload(all, device);
  columns = Tensor::empty({entries * (1 + side)}, i32, device);
  list.strips = strips.count;
  list.offsets = lists.data<int32_t>();
  list.order = list.offsets + strips.offsets.size();
  if (gathered) list.rows = list.order + strips.order.size();
  auto* const cols = columns.data<int32_t>();
  list.cols = cols;
  list.blocks = cols + entries;
  if (device.is_cpu()) {
    list_columns(layout, strips, cols, cols + entries);
    return;
  }
  const Stream stream = current_stream(device);
  const int width = strips.shape.transposed ? layout.rows() : layout.cols();
  if (width <= most_filled_cols) {
    fill_strips(layout.view(device), strips.shape, list, cols, cols + entries, stream);
  } else {
    std::vector<int32_t> host(static_cast<size_t>(columns.numel()));
    list_columns(layout, strips, host.data(), host.data() + entries);
    copy_to_device(cols, host.data(), columns.bytes(), stream);
  }
}

DeviceStrips::DeviceStrips(const Layout& layout, const StripShape& shape, Stream stream) {
  const LayoutView view = layout.view(stream.device());
  const int rows = shape.transposed ? view.cols : view.rows;
  list.strips = static_cast<int>(ceil_div(rows, shape.side));
  const int64_t strips = int64_t{view.heads} * list.strips;
  lists = Tensor::empty({2 * strips + 1}, i32, stream.device());
  columns = Tensor::empty({layout.nnz() * (1 + shape.side)}, i32, stream.device());
  auto* const offsets = lists.data<int32_t>();
  auto* const order = offsets + strips + 1;
  auto* const cols = columns.data<int32_t>();
  count_strips(view, shape, list.strips, offsets, order, stream);
  list.offsets = offsets;
  list.order = order;
  list.cols = cols;
  list.blocks = cols + layout.nnz();
  fill_strips(view, shape, list, cols, cols + layout.nnz(), stream);
}

namespace {

/// A key of what is on one device.
template <class Of>
struct OnDevice {
  Of of;
  int device;
  bool operator==(const OnDevice&) const = default;
};
template <class Of>
struct Planned {
  Of shape;
  Settings settings;
  int device;
  bool operator==(const Planned&) const = default;
};

}  // namespace

Kept<DeviceStrips> device_strips(const Layout& layout, const StripShape& shape, Stream stream) {
  const Device device = stream.device();
  const OnDevice<StripShape> key{shape, device.index()};
  return listed_on<DeviceStrips>(layout, key, stream, [&] {
    const bool here = device.is_cpu() || layout.on_host() || shape.gathered || shape.pairs ||
                      !counts_strips(layout, shape.transposed);
    return here ? DeviceStrips(layout, *strips_of(layout, shape), device)
                : DeviceStrips(layout, shape, stream);
  });
}

DeviceRanges::DeviceRanges(const std::vector<device::SddRange>& ranges,
                           const GatheredStrips& strips, Device device) {
  static_assert(sizeof(device::SddRange) % sizeof(int32_t) == 0);
  const auto* const words = reinterpret_cast<const int32_t*>(ranges.data());
  std::vector<int32_t> all(words,
                           words + ranges.size() * sizeof(device::SddRange) / sizeof(int32_t));
  const auto append = [&](const std::vector<int32_t>& part) {
    const size_t begin = all.size();
    all.insert(all.end(), part.begin(), part.end());
    return begin;
  };
  rows_ = append(strips.rows);
  cols_ = append(strips.cols);
  blocks_ = append(strips.blocks);
  packed = upload(all, device);
  work = reinterpret_cast<const device::SddRange*>(packed.data<int32_t>());
}

device::StripList DeviceRanges::gathered(int rows) const {
  const int32_t* const words = packed.data<int32_t>();
  device::StripList list{};
  list.rows = words + rows_;
  list.cols = words + cols_;
  list.blocks = words + blocks_;
  list.strips = rows;
  return list;
}

Kept<DeviceLines> device_lines(const Layout& layout, bool transposed, Stream stream) {
  const Device device = stream.device();
  const OnDevice<bool> key{transposed, device.index()};
  return listed_on<DeviceLines>(layout, key, stream, [&] {
    return DeviceLines{upload(sorted_lines(layout, transposed), device), {}};
  });
}

namespace {

DsdWork listed(DsdPlan plan, int64_t planned_n, Stream stream) {
  DsdWork work{.plan = std::move(plan), .planned_n = planned_n};
  work.split = DevicePieces(work.plan.split, stream.device());
  work.plan.split = {};
  if (work.split.count > 0) work.made = MadeOn(stream);
  return work;
}

SddWork listed(SddPlan plan, Stream stream) {
  SddWork work{.plan = std::move(plan)};
  work.items = work.plan.items();
  if (work.items == 0) return work;
  work.split = DevicePieces(work.plan.split, stream.device());
  work.ranges = DeviceRanges(work.plan.ranges, work.plan.gathered, stream.device());
  work.plan.split = {};
  work.plan.ranges = {};
  work.plan.gathered = {};
  work.made = MadeOn(stream);
  return work;
}

}  // namespace

Kept<DsdWork> dsd_work(const Layout& layout, const DsdShape& shape, Stream stream,
                       const std::function<double(const DsdWork&)>& time) {
  const Device device = stream.device();
  const Settings now = settings();
  const DsdShape planned = planned_shape(layout, shape, gpu_of(device), now);
  const auto plan = [&] {
    const Gpu gpu = gpu_now(device);
    if (!now.tune || planned.epilogue || !may_time(stream))
      return plan_dsd(layout, planned, gpu, now);
    return tuned(
        {gpu_key(device), line_of(layout, planned, now)},
        [&](const std::string& name) { return dsd_candidate(name, layout, planned, gpu, now); },
        [&] { return dsd_candidates(layout, planned, gpu, now); },
        [&](const DsdPlan& each) { return time(listed(each, planned.n, stream)); });
  };
  Kept<DsdWork> kept = layout.derived<DsdWork>(Planned<DsdShape>{planned, now, device.index()},
                                               [&] { return listed(plan(), planned.n, stream); });
  kept->made.wait(kept, stream);
  return kept;
}

Kept<SddWork> sdd_work(const Layout& layout, const SddShape& shape, Stream stream,
                       const std::function<double(const SddWork&)>& time) {
  const Device device = stream.device();
  const Settings now = settings();
  const SddShape planned = planned_shape(layout, shape, gpu_of(device));
  const auto plan = [&] {
    const Gpu gpu = gpu_now(device);
    if (!now.tune || planned.epilogue || !may_time(stream))
      return plan_sdd(layout, planned, gpu, now);
    return tuned(
        {gpu_key(device), line_of(layout, planned, now)},
        [&](const std::string& name) { return sdd_candidate(name, layout, planned, gpu, now); },
        [&] { return sdd_candidates(layout, planned, gpu, now); },
        [&](const SddPlan& each) { return time(listed(each, stream)); });
  };
  Kept<SddWork> kept = layout.derived<SddWork>(Planned<SddShape>{planned, now, device.index()},
                                               [&] { return listed(plan(), stream); });
  kept->made.wait(kept, stream);
  return kept;
}

}  // namespace bs::cuda
