#include <bs/lib/packed_mask.h>

#include <bs/lib/host_view.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace bs {

namespace {

/// Elements of one head, and the blocks that they are cut into.
struct Extents {
  int64_t rows, cols;
  int block;
  int64_t heads;
  int64_t block_rows() const { return ceil_div(rows, block); }
  int64_t block_cols() const { return ceil_div(cols, block); }
};

}  // namespace

/// Makes a mask of its blocks, one after the other.
class MaskPacker {
 public:
  explicit MaskPacker(const Extents& extents) : extents_(extents) {
    const int64_t count = extents_.heads * extents_.block_rows() * extents_.block_cols();
    numbers_.assign(static_cast<size_t>(count), PackedMask::none_seen);
  }

  /// Asks `sees(row, col)` for the elements of a block.
  template <class Sees>
  void add(const BlockIndex& at, const Sees& sees) {
    const Extents& e = extents_;
    const int64_t row = int64_t{at.row} * e.block, col = int64_t{at.col} * e.block;
    const int64_t rows = std::min<int64_t>(e.block, e.rows - row);
    const int64_t cols = std::min<int64_t>(e.block, e.cols - col);
    const size_t first = bits_.size();
    bits_.resize(first + static_cast<size_t>(e.block * e.block / 8));
    int64_t seen = 0;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        if (!sees(row + i, col + j)) continue;
        ++seen;
        uint8_t& byte = bits_[first + static_cast<size_t>((i * e.block + j) / 8)];
        byte = static_cast<uint8_t>(byte | 1U << j % 8);
      }
    if (seen > 0) blocks_.push_back(at);
    int32_t& number = numbers_[static_cast<size_t>(
        (at.head * e.block_rows() + at.row) * e.block_cols() + at.col)];
    if (seen > 0 && seen < rows * cols) {
      BS_CHECK(mixed_ < std::numeric_limits<int32_t>::max(), "pack_mask: more than {} blocks",
               mixed_);
      number = mixed_++;
      return;
    }
    if (seen > 0) number = PackedMask::all_seen;
    bits_.resize(first);
  }

  PackedMask finish(Device device) && {
    const Extents& e = extents_;
    const auto heads = static_cast<int>(e.heads);
    const auto rows = static_cast<int>(e.block_rows()), cols = static_cast<int>(e.block_cols());
    Tensor numbers = Tensor::from(std::span<const int32_t>(numbers_), {heads, rows, cols});
    Tensor bits = Tensor::from(std::span<const uint8_t>(bits_), {mixed_, e.block, e.block / 8});
    return {Layout::from_blocks(heads, rows, cols, e.block, std::move(blocks_)), numbers.to(device),
            bits.to(device)};
  }

 private:
  Extents extents_;
  std::vector<int32_t> numbers_;
  std::vector<uint8_t> bits_;
  std::vector<BlockIndex> blocks_;
  int32_t mixed_ = 0;  // blocks of which some is seen, and not all
};

namespace {

void check_extents(const Extents& e) {
  BS_CHECK(e.block == 8 || e.block == 16 || e.block == 32 || e.block == 64 || e.block == 128,
           "pack_mask: block {} is none of 8, 16, 32, 64 and 128", e.block);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  BS_CHECK(e.rows <= most && e.cols <= most && e.heads <= most &&
               e.heads * e.block_rows() <= most / std::max<int64_t>(1, e.block_cols()),
           "pack_mask: {} heads of {} x {} elements in blocks of {} are too many", e.heads, e.rows,
           e.cols, e.block);
}

}  // namespace

PackedMask::PackedMask(LayoutPtr layout, Tensor numbers, Tensor bits)
    : layout_(std::move(layout)), numbers_(std::move(numbers)), bits_(std::move(bits)) {}

PackedMask PackedMask::to(Device device) const {
  return defined() ? PackedMask(layout_, numbers_.to(device), bits_.to(device)) : PackedMask();
}

PackedMask pack_mask(const Tensor& mask, int block) {
  BS_CHECK(mask.rank() >= 2 && mask.rank() <= 4,
           "pack_mask: mask {} is not [rows, cols], [heads, rows, cols] or [batch, heads, rows, "
           "cols]",
           mask.shape());
  int64_t heads = 1;
  for (int axis = 0; axis + 2 < mask.rank(); ++axis) heads *= mask.size(axis);
  const Extents e{mask.size(-2), mask.size(-1), block, heads};
  check_extents(e);
  std::vector<uint8_t> seen;
  seen.reserve(static_cast<size_t>(mask.numel()));
  const Tensor host = host_view(mask);
  const bool added = is_floating(mask.dtype());
  visit_any(mask.dtype(), [&]<class T>(Type<T>) {
    for_each_value<T>(host, [&](T value) {
      const auto x = static_cast<double>(value);
      BS_CHECK(!added || x == 0 || x == -std::numeric_limits<double>::infinity(),
               "pack_mask: a floating mask is added to scores, and {} is neither 0 nor -infinity",
               x);
      seen.push_back((x != 0) != added ? uint8_t{1} : uint8_t{0});
    });
  });
  MaskPacker packer(e);
  for (int32_t head = 0; head < heads; ++head)
    for (int32_t row = 0; row < e.block_rows(); ++row)
      for (int32_t col = 0; col < e.block_cols(); ++col)
        packer.add({head, row, col}, [&](int64_t i, int64_t j) {
          return seen[static_cast<size_t>((head * e.rows + i) * e.cols + j)] != 0;
        });
  return std::move(packer).finish(mask.device());
}

PackedMask pack_mask(const LayoutPtr& within, int64_t rows, int64_t cols,
                     const std::function<bool(int64_t, int64_t, int64_t)>& sees, Device device) {
  BS_CHECK(within != nullptr, "pack_mask: no layout");
  BS_CHECK(sees != nullptr, "pack_mask: no function");
  const Layout& l = *within;
  BS_CHECK(rows >= 0 && cols >= 0 && rows <= l.height() && cols <= l.width() &&
               rows > l.height() - l.block() && cols > l.width() - l.block(),
           "pack_mask: {} rows and {} columns do not fit a layout of {} x {} blocks of {}", rows,
           cols, l.rows(), l.cols(), l.block());
  const Extents e{rows, cols, l.block(), l.heads()};
  check_extents(e);
  MaskPacker packer(e);
  const LayoutView v = l.view(Device::cpu());
  for (int32_t n = 0; n < v.nnz; ++n) {
    const BlockIndex at{v.head_of[n], v.row_of[n], v.col_of[n]};
    packer.add(at, [&](int64_t i, int64_t j) { return sees(at.head, i, j); });
  }
  return std::move(packer).finish(device);
}

}  // namespace bs
