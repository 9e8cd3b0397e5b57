#include <bs/kernels/cuda/attention/ragged_layout.h>
#include <bs/kernels/layout_from_rows.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <memory>

namespace bs::cuda {

namespace {

constexpr int threads = 256, place_rows = 128;
constexpr size_t most_kept = 4;  // each step may have lengths of its own

/// A block row of the result: its blocks are those of the layout from number `from` on, as many
/// columns farther as its sequence begins.
struct Row {
  int from, shift;
};

/// What the host tells of the sequences.
struct Plan {
  std::vector<int32_t> offsets{0};  ///< [heads * rows + 1]
  std::vector<Row> rows;            ///< [heads * rows]
  std::vector<device::AttentionPlace> places;
  std::vector<int32_t> begins;
};

/// Appends the block rows of a sequence of `length`, the first of which is row `begin`.
void append(Plan& plan, const LayoutView& v, int head, int64_t begin, int64_t length) {
  const auto wanted = static_cast<int>(ceil_div(length, v.block));
  const auto rows = static_cast<int>(round_up(length, place_rows) / v.block);
  for (int row = 0; row < rows; ++row) {
    const int32_t* const offsets = v.row_offsets + int64_t{head} * v.rows + row;
    const int from = row < wanted ? offsets[0] : 0, end = row < wanted ? offsets[1] : 0;
    const auto kept = std::lower_bound(v.col_of + from, v.col_of + end, wanted);
    plan.rows.push_back({from, static_cast<int>(begin / v.block)});
    plan.offsets.push_back(plan.offsets.back() + static_cast<int>(kept - v.col_of) - from);
  }
}

Plan plan_of(const Layout& layout, const std::vector<int64_t>& starts) {
  const LayoutView v = layout.view(Device::cpu());
  Plan plan;
  for (int head = 0; head < layout.heads(); ++head) {
    int64_t begin = 0;
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      append(plan, v, head, begin, starts[i + 1] - starts[i]);
      begin += round_up(starts[i + 1] - starts[i], place_rows);
    }
  }
  int64_t begin = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i], tiles = ceil_div(length, place_rows);
    plan.places.insert(plan.places.end(), static_cast<size_t>(tiles),
                       {static_cast<int>(begin - starts[i]), static_cast<int>(begin + length)});
    plan.begins.insert(plan.begins.end(), static_cast<size_t>(tiles), static_cast<int32_t>(begin));
    begin += tiles * place_rows;
  }
  return plan;
}

/// A warp a block row.
__global__ void columns_kernel(const int32_t* col_of, const Row* rows, int64_t count,
                               const int32_t* offsets, int32_t* columns) {
  const int64_t step = int64_t{gridDim.x} * (threads / 32);
  for (int64_t i = (int64_t{blockIdx.x} * threads + threadIdx.x) / 32; i < count; i += step) {
    const Row row = rows[i];
    const int begin = offsets[i], blocks = offsets[i + 1] - begin;
    for (int n = static_cast<int>(threadIdx.x) % 32; n < blocks; n += 32)
      columns[begin + n] = col_of[row.from + n] + row.shift;
  }
}

__global__ void seen_kernel(const device::AttentionPlace* places, int64_t count,
                            unsigned char* seen) {
  const int64_t step = int64_t{gridDim.x} * threads;
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < count; i += step)
    seen[i] = i < places[i / place_rows].end;
}

RaggedLayout make(const Layout& layout, const std::vector<int64_t>& starts, Stream stream) {
  const Device device = stream.device();
  const Plan plan = plan_of(layout, starts);
  const auto lines = static_cast<int64_t>(plan.rows.size()), rows = ragged_rows(starts);
  const auto blocks = static_cast<int>(rows / layout.block());
  const Tensor offsets = upload(plan.offsets, device), sources = upload(plan.rows, device);
  const Tensor columns = Tensor::empty({plan.offsets.back()}, i32, device);
  RaggedLayout out{.layout = {},
                   .places = upload(plan.places, device),
                   .begins = upload(plan.begins, device),
                   .seen = Tensor::empty({rows}, u8, device),
                   .made = {}};
  columns_kernel<<<grid_size(lines * 32, threads, device), threads, 0, native(stream)>>>(
      layout.view(device).col_of, static_cast<const Row*>(sources.data()), lines,
      offsets.data<int32_t>(), columns.data<int32_t>());
  seen_kernel<<<grid_size(rows, threads, device), threads, 0, native(stream)>>>(
      static_cast<const device::AttentionPlace*>(out.places.data()), rows,
      static_cast<unsigned char*>(out.seen.data()));
  BS_CUDA_CHECK_LAUNCH("sparse_attention");
  out.layout = layout_from_rows(offsets, columns, {layout.heads(), blocks, blocks, layout.block()});
  return out;
}

struct OnDevice {
  int device;
  bool operator==(const OnDevice&) const = default;
};

}  // namespace

int64_t ragged_rows(const std::vector<int64_t>& starts) {
  int64_t rows = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    rows += round_up(starts[i + 1] - starts[i], place_rows);
  return rows;
}

Kept<RaggedLayout> ragged_layout(const Layout& layout, const std::vector<int64_t>& starts,
                                 Stream stream) {
  if (is_captured(stream)) return Kept<RaggedLayout>::of(make(layout, starts, stream));
  const auto kept = layout.derived<std::shared_ptr<Cache>>(
      OnDevice{stream.device().index()}, [] { return std::make_shared<Cache>(most_kept); });
  const Kept<RaggedLayout> ragged = (*kept)->get<RaggedLayout>(starts, [&] {
    RaggedLayout made = make(layout, starts, stream);
    made.made = MadeOn(stream);
    return made;
  });
  ragged->made.wait(ragged, stream);
  return ragged;
}

}  // namespace bs::cuda
