#include <bs/lib/layout.h>

#include <bs/lib/host_view.h>
#include <bs/lib/integers.h>
#include <bs/lib/out_of_memory.h>
#if BS_WITH_CUDA
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>
#endif

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <numeric>

namespace bs {

namespace {

constexpr int64_t most_indices = std::numeric_limits<int32_t>::max();

void check_extents(const char* op, int64_t heads, int64_t rows, int64_t cols, int block) {
  BS_CHECK(is_block(block), "{}: block {} is none of 8, 16, 32, 64 and 128", op, block);
  BS_CHECK(heads >= 0 && rows >= 0 && cols >= 0, "{}: negative extent: {} heads of {} x {} blocks",
           op, heads, rows, cols);
  BS_CHECK(rows < most_indices && cols < most_indices && heads < most_indices &&
               heads * std::max(rows, cols) < most_indices,
           "{}: {} heads of {} x {} blocks need indices of more than 31 bits", op, heads, rows,
           cols);
}

void check_count(const char* op, size_t nnz) {
  BS_CHECK(nnz <= static_cast<size_t>(most_indices),
           "{}: {} blocks are more than 31 bits can number", op, nnz);
}

/// One of a layout's arrays.
struct Part {
  const int32_t* LayoutView::*array;
  int64_t count;
};

/// All of them, for a layout of such extents.
std::array<Part, 7> parts_of(const LayoutView& v) {
  return {{{&LayoutView::row_offsets, int64_t{v.heads} * v.rows + 1},
           {&LayoutView::head_of, v.nnz},
           {&LayoutView::row_of, v.nnz},
           {&LayoutView::col_of, v.nnz},
           {&LayoutView::col_offsets, int64_t{v.heads} * v.cols + 1},
           {&LayoutView::transposed, v.nnz},
           {&LayoutView::transposed_row, v.nnz}}};
}

size_t index(int64_t i) { return static_cast<size_t>(i); }

/// Where each bucket begins, and after the last one the count of all.
template <class Key>
std::vector<int32_t> bucket_offsets(int64_t buckets, int64_t count, Key&& key) {
  std::vector<int32_t> offsets(index(buckets) + 1);
  for (int64_t i = 0; i < count; ++i) ++offsets[index(key(i)) + 1];
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  return offsets;
}

/// Stable counting sort of `blocks` by `key`, which is below `buckets`.
template <class Key>
void counting_sort(std::vector<BlockIndex>& blocks, int64_t buckets, Key&& key) {
  std::vector<int32_t> next = bucket_offsets(buckets, static_cast<int64_t>(blocks.size()),
                                             [&](int64_t i) { return key(blocks[index(i)]); });
  std::vector<BlockIndex> sorted(blocks.size());
  for (const BlockIndex& b : blocks) sorted[index(next[index(key(b))]++)] = b;
  blocks.swap(sorted);
}

std::string describe(const BlockIndex& b) {
  return format("(head {}, row {}, column {})", b.head, b.row, b.col);
}

uint64_t mix(uint64_t h, uint64_t value) {  // FNV-1a by words, with the high bits folded back
  h = (h ^ value) * 0x100000001b3ULL;
  return h ^ (h >> 29);
}

}  // namespace

/// The arrays of a layout on one device, in one tensor.
struct Layout::DeviceCopy {
  Device device;
  Tensor packed;
  LayoutView view;
#if BS_WITH_CUDA
  cuda::Milestone made;
#endif
};

LayoutPtr Layout::from_mask(const Tensor& mask, int block) try {
  BS_CHECK(mask.rank() == 2 || mask.rank() == 3,
           "layout: a mask is [rows, cols] or [heads, rows, cols], not {}", mask.shape());
  const Tensor m = host_view(mask.rank() == 3 ? mask : mask.unsqueeze(0));
  check_extents("layout", m.size(0), m.size(1), m.size(2), block);
  const std::shared_ptr<Layout> layout(new Layout);
  layout->block_ = block;
  layout->heads_ = static_cast<int>(m.size(0));
  layout->rows_ = static_cast<int>(m.size(1));
  layout->cols_ = static_cast<int>(m.size(2));
  visit_any(m.dtype(), [&]<class T>(Type<T>) {
    int32_t head = 0;
    int32_t row = 0;
    int32_t col = 0;
    for_each_value<T>(m, [&](T value) {
      if (static_cast<double>(value) != 0) {
        layout->head_of_.push_back(head);
        layout->row_of_.push_back(row);
        layout->col_of_.push_back(col);
      }
      if (++col < layout->cols_) return;
      col = 0;
      if (++row < layout->rows_) return;
      row = 0;
      ++head;
    });
  });
  check_count("layout", layout->col_of_.size());
  layout->finish();
  return layout;
} catch (const std::bad_alloc&) {
  out_of_own_memory("layout");
}

LayoutPtr Layout::from_blocks(int heads, int rows, int cols, int block,
                              std::vector<BlockIndex> blocks) try {
  check_extents("layout", heads, rows, cols, block);
  check_count("layout", blocks.size());
  for (const BlockIndex& b : blocks)
    BS_CHECK(
        b.head >= 0 && b.head < heads && b.row >= 0 && b.row < rows && b.col >= 0 && b.col < cols,
        "layout: block {} is outside of {} heads of {} x {} blocks", describe(b), heads, rows,
        cols);
  if (!std::is_sorted(blocks.begin(), blocks.end())) {
    counting_sort(blocks, cols, [](const BlockIndex& b) { return int64_t{b.col}; });
    counting_sort(blocks, int64_t{heads} * rows,
                  [rows](const BlockIndex& b) { return int64_t{b.head} * rows + b.row; });
  }
  const auto twin = std::adjacent_find(blocks.begin(), blocks.end());
  BS_CHECK(twin == blocks.end(), "layout: block {} is listed twice", describe(*twin));

  const std::shared_ptr<Layout> layout(new Layout);
  layout->block_ = block;
  layout->heads_ = heads;
  layout->rows_ = rows;
  layout->cols_ = cols;
  layout->head_of_.reserve(blocks.size());
  layout->row_of_.reserve(blocks.size());
  layout->col_of_.reserve(blocks.size());
  for (const BlockIndex& b : blocks) {
    layout->head_of_.push_back(b.head);
    layout->row_of_.push_back(b.row);
    layout->col_of_.push_back(b.col);
  }
  layout->finish();
  return layout;
} catch (const std::bad_alloc&) {
  out_of_own_memory("layout");
}

LayoutArrays::LayoutArrays(const LayoutView& extents, Device device) : view(extents) {
  check_extents("layout", view.heads, view.rows, view.cols, view.block);
  BS_CHECK(view.nnz >= 0, "layout: {} blocks", view.nnz);
  constexpr int64_t aligned = 64;  // 256 bytes, so that kernels may load vectors from any array
  const auto padded = [](int64_t count) { return round_up(count, aligned); };
  int64_t size = 0;
  for (const Part& part : parts_of(view)) size += padded(part.count);
  memory = Tensor::empty({size}, i32, device);
  int32_t* next = memory.data<int32_t>();
  for (const Part& part : parts_of(view)) {
    view.*part.array = next;
    next += padded(part.count);
  }
}

int32_t* LayoutArrays::writable(const int32_t* array) const {
  int32_t* const begin = memory.data<int32_t>();
  return begin + (array - begin);
}

LayoutPtr Layout::from_arrays(const LayoutArrays& arrays) {
  const std::shared_ptr<Layout> layout(new Layout);
  layout->block_ = arrays.view.block;
  layout->heads_ = arrays.view.heads;
  layout->rows_ = arrays.view.rows;
  layout->cols_ = arrays.view.cols;
  layout->nnz_ = arrays.view.nnz;
  layout->made_ = arrays;
  layout->on_host_ = false;
#if BS_WITH_CUDA
  if (const Device device = arrays.memory.device(); device.is_cuda()) {
    const Stream stream = current_stream(device);
    // A captured stream makes them in each run of its graph, for that graph alone.
    const cuda::Milestone made =
        cuda::is_captured(stream) ? cuda::Milestone() : cuda::Milestone(stream);
    layout->copies_.push_back(
        std::make_shared<DeviceCopy>(DeviceCopy{device, arrays.memory, arrays.view, made}));
  }
#endif
  return layout;
}

bool Layout::on_host() const { return on_host_; }

/// Brings the arrays to the host, if they were made on a device and are not there yet.
void Layout::fetch() const {
  if (on_host_) return;
  std::call_once(fetched_, [this] {
    const LayoutArrays& from = *made_;
#if BS_WITH_CUDA
    if (from.memory.device().is_cuda()) {
      const std::lock_guard lock(mutex_);
      copies_.front()->made.wait(current_stream(from.memory.device()));
    }
#endif
    const Tensor all = from.memory.to(Device::cpu());
    const int32_t* const begin = from.memory.data<int32_t>();
    const auto read = [&](const int32_t* array, int64_t count) {
      const int32_t* const values = all.data<int32_t>() + (array - begin);
      return std::vector<int32_t>(values, values + count);
    };
    const LayoutView& v = from.view;
    row_offsets_ = read(v.row_offsets, int64_t{heads_} * rows_ + 1);
    head_of_ = read(v.head_of, nnz_);
    row_of_ = read(v.row_of, nnz_);
    col_of_ = read(v.col_of, nnz_);
    col_offsets_ = read(v.col_offsets, int64_t{heads_} * cols_ + 1);
    transposed_ = read(v.transposed, nnz_);
    transposed_row_ = read(v.transposed_row, nnz_);
    count_hash();
    on_host_ = true;
  });
}

/// Everything that follows from the extents and the blocks in row order.
void Layout::finish() {
  nnz_ = static_cast<int64_t>(col_of_.size());
  const auto key = [this](const std::vector<int32_t>& of, int extent) {
    return [this, &of, extent](int64_t i) {
      return int64_t{head_of_[index(i)]} * extent + of[index(i)];
    };
  };
  row_offsets_ = bucket_offsets(int64_t{heads_} * rows_, nnz(), key(row_of_, rows_));
  const auto column = key(col_of_, cols_);
  col_offsets_ = bucket_offsets(int64_t{heads_} * cols_, nnz(), column);
  transposed_.resize(col_of_.size());
  transposed_row_.resize(col_of_.size());
  std::vector<int32_t> next = col_offsets_;
  for (int64_t i = 0; i < nnz(); ++i) {
    const auto at = index(next[index(column(i))]++);
    transposed_[at] = static_cast<int32_t>(i);
    transposed_row_[at] = row_of_[index(i)];
  }
  count_hash();
}

void Layout::count_hash() const {
  hash_ = 0xcbf29ce484222325ULL;
  for (int extent : {block_, heads_, rows_, cols_})
    hash_ = mix(hash_, static_cast<uint64_t>(extent));
  for (int32_t offset : row_offsets_) hash_ = mix(hash_, static_cast<uint64_t>(offset));
  for (int32_t col : col_of_) hash_ = mix(hash_, static_cast<uint64_t>(col));
}

uint64_t Layout::hash() const {
  fetch();
  return hash_;
}

int64_t Layout::nnz(int head) const {
  fetch();
  BS_CHECK(head >= 0 && head < heads_, "layout: head {} of {}", head, heads_);
  const int64_t first = int64_t{head} * rows_;
  return row_offsets_[index(first + rows_)] - row_offsets_[index(first)];
}

double Layout::density() const {
  const double all = double(heads_) * rows_ * cols_;
  return all > 0 ? static_cast<double>(nnz()) / all : 0;
}

namespace {
int longest(const std::vector<int32_t>& offsets) {
  int32_t top = 0;
  for (size_t i = 1; i < offsets.size(); ++i) top = std::max(top, offsets[i] - offsets[i - 1]);
  return top;
}
}  // namespace

int Layout::max_row() const {
  fetch();
  return longest(row_offsets_);
}
int Layout::max_col() const {
  fetch();
  return longest(col_offsets_);
}

double Layout::flops(int64_t n) const {
  return 2.0 * static_cast<double>(nnz()) * block_ * block_ * static_cast<double>(n);
}

bool Layout::operator==(const Layout& other) const {
  return hash() == other.hash() && block_ == other.block_ && heads_ == other.heads_ &&
         rows_ == other.rows_ && cols_ == other.cols_ && row_offsets_ == other.row_offsets_ &&
         col_of_ == other.col_of_;
}

bool Layout::contains(int head, int row, int col) const {
  if (head < 0 || head >= heads_ || row < 0 || row >= rows_) return false;
  fetch();
  const size_t line = index(int64_t{head} * rows_ + row);
  return std::binary_search(col_of_.begin() + row_offsets_[line],
                            col_of_.begin() + row_offsets_[line + 1], col);
}

Tensor Layout::mask() const {
  fetch();
  Tensor mask = Tensor::empty({heads_, rows_, cols_}, u8);
  auto* kept = mask.data<uint8_t>();
  std::fill_n(kept, mask.numel(), uint8_t{0});
  for (size_t i = 0; i < col_of_.size(); ++i)
    kept[(int64_t{head_of_[i]} * rows_ + row_of_[i]) * cols_ + col_of_[i]] = 1;
  return mask;
}

LayoutPtr Layout::transpose() const {
  fetch();
  std::vector<BlockIndex> blocks;
  blocks.reserve(transposed_.size());
  for (size_t i = 0; i < transposed_.size(); ++i) {
    const size_t number = index(transposed_[i]);
    blocks.push_back({head_of_[number], col_of_[number], transposed_row_[i]});
  }
  return from_blocks(heads_, cols_, rows_, block_, std::move(blocks));
}

LayoutView Layout::extents() const {
  return {.block = block_,
          .heads = heads_,
          .rows = rows_,
          .cols = cols_,
          .nnz = static_cast<int32_t>(nnz_)};
}

LayoutView Layout::host_arrays() const {
  LayoutView view = extents();
  view.row_offsets = row_offsets_.data();
  view.head_of = head_of_.data();
  view.row_of = row_of_.data();
  view.col_of = col_of_.data();
  view.col_offsets = col_offsets_.data();
  view.transposed = transposed_.data();
  view.transposed_row = transposed_row_.data();
  return view;
}

LayoutView Layout::view(Device device) const {
  if (made_ && device.is_cpu() && made_->memory.device() == device) return made_->view;
  if (!made_ || made_->memory.device() != device) fetch();
  const LayoutView host = host_arrays();
  if (device.is_cpu()) return host;
  check_usable("layout", device);

#if BS_WITH_CUDA
  const std::lock_guard lock(mutex_);
  const Stream stream = current_stream(device);
  for (const auto& copy : copies_) {
    if (copy->device != device) continue;
    copy->made.wait(stream);
    return copy->view;
  }

  const LayoutArrays arrays(host, device);
  for (const auto& [array, count] : parts_of(host)) {
    int32_t* const to = arrays.writable(arrays.view.*array);
    const size_t bytes = static_cast<size_t>(count) * sizeof(int32_t);
    if (array == &LayoutView::head_of && heads_ == 1 && bytes > 0)
      cuda::fill_zero(to, bytes, stream);
    else
      cuda::copy_to_device(to, host.*array, bytes, stream);
  }
  copies_.push_back(std::make_shared<DeviceCopy>(
      DeviceCopy{device, arrays.memory, arrays.view, cuda::Milestone(stream)}));
  return arrays.view;
#else
  return host;
#endif
}

}  // namespace bs
