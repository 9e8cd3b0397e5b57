#pragma once
/** @file The pattern of a block-sparse matrix: which blocks exist, and nothing of their values. */
#include <bs/lib/device.h>
#include <bs/lib/kept.h>
#include <bs/lib/tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bs {

/** @brief A Layout as kernels see it: plain pointers on one device, copied into a launch by value.
 *
 *  Blocks are numbered 0..nnz-1 in (head, row, column) order, the order of values in memory. The
 *  column order lists the same blocks by (head, column, row); `transposed` tells the number of
 * each. So the transpose is walked without moving a value. */
struct LayoutView {
  int32_t block = 0;  ///< rows and columns of a block, in elements
  int32_t heads = 0;
  int32_t rows = 0;                         ///< block rows of one head
  int32_t cols = 0;                         ///< block columns of one head
  int32_t nnz = 0;                          ///< blocks over all heads
  const int32_t* row_offsets = nullptr;     ///< [heads * rows + 1], into the row order
  const int32_t* head_of = nullptr;         ///< [nnz], row order
  const int32_t* row_of = nullptr;          ///< [nnz], row order
  const int32_t* col_of = nullptr;          ///< [nnz], row order
  const int32_t* col_offsets = nullptr;     ///< [heads * cols + 1], into the column order
  const int32_t* transposed = nullptr;      ///< [nnz], column order -> block number
  const int32_t* transposed_row = nullptr;  ///< [nnz], column order -> row of that block
};

/** @brief Memory for the arrays of a layout on one device, for kernels to fill in. */
struct LayoutArrays {
  LayoutView view;  ///< the extents, and pointers into `memory`
  Tensor memory;    ///< i32; each array begins at a multiple of 256 bytes

  /** @param[in] extents block, heads, rows, cols and nnz; its pointers are ignored
   *  @throws Error for another block size, or extents that 31 bits cannot number. */
  LayoutArrays(const LayoutView& extents, Device device);
  /** @brief One of the view's arrays, to be written. */
  int32_t* writable(const int32_t* array) const;
};

/** @brief Whether a layout may have blocks of so many elements a side: 8, 16, 32, 64 or 128. */
constexpr bool is_block(int64_t block) {
  return block == 8 || block == 16 || block == 32 || block == 64 || block == 128;
}

/** @brief Position of one block. */
struct BlockIndex {
  int32_t head = 0, row = 0, col = 0;
  auto operator<=>(const BlockIndex&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};

class Layout;
/** @brief Layouts are immutable and shared. */
using LayoutPtr = std::shared_ptr<const Layout>;

/** @brief An immutable pattern of square blocks, its own for each head. Construction is O(nnz +
 * rows + cols); copies on devices are made once, at first use. */
class Layout {
 public:
  /** @brief Blocks where `mask` is not zero.
   *  @param[in] mask [rows, cols] (one head) or [heads, rows, cols], any dtype, any device
   *  @param[in] block elements a side of a block: 8, 16, 32, 64 or 128
   *  @throws Error for another rank or block size, or more than 2^31 - 1 blocks. */
  static LayoutPtr from_mask(const Tensor& mask, int block);
  /** @brief The blocks listed, in any order. @throws Error for duplicates or positions outside. */
  static LayoutPtr from_blocks(int heads, int rows, int cols, int block,
                               std::vector<BlockIndex> blocks);
  /** @brief A pattern whose arrays are made on a device, by what is queued on its current stream.
   *  The host waits for nothing. It fetches the arrays, once, where it must look at the pattern
   *  itself. That is for hash, ==, contains, mask, transpose, the longest row, nnz(head), and a
   *  view of another device. The arrays are trusted to be those of a layout. */
  static LayoutPtr from_arrays(const LayoutArrays& arrays);
  /** @brief Whether the host has the arrays, so that nothing here waits for a device. */
  bool on_host() const;

  int block() const { return block_; }
  int heads() const { return heads_; }
  /** @brief Block rows and block columns of one head. */
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  /** @brief Elements along the dense matrix' two sides. */
  int64_t height() const { return int64_t{rows_} * block_; }
  int64_t width() const { return int64_t{cols_} * block_; }
  /** @brief Blocks over all heads; of one head. */
  int64_t nnz() const { return nnz_; }
  int64_t nnz(int head) const;
  /** @brief Blocks present / blocks of the dense matrix; 0 for an empty one. */
  double density() const;
  /** @brief Longest row and column, in blocks: what bounds the slowest worker. */
  int max_row() const;
  int max_col() const;
  /** @brief FLOPs of one product whose dense operand has `n` columns: 2 nnz block^2 n. */
  double flops(int64_t n) const;
  /** @brief Equal layouts have equal hashes. */
  uint64_t hash() const;
  bool operator==(const Layout& other) const;

  /** @brief Whether the block exists. O(log of the row's length). */
  bool contains(int head, int row, int col) const;
  /** @brief The pattern as a u8 tensor [heads, rows, cols] on the host. */
  Tensor mask() const;
  /** @brief The pattern of the transposed matrix. */
  LayoutPtr transpose() const;
  /** @brief Arrays on `device`, for its current stream; valid as long as this layout. The host does
   *  not wait for them. Thread-safe. @throws Error while the stream is captured, unless they were
   *  made before. */
  LayoutView view(Device device) const;
  /** @brief What `make()` derives from this pattern, a kernel's work list say. It is made at the
   *  first call with `key`, which is any type that has `==`, and T; then kept while it is used. Of
   * what is not pinned, the `most_derived` last asked for stay. Thread-safe; no lock is held while
   * `make` runs, and it may derive what it is made of. */
  template <class T, class Key, class Make>
  Kept<T> derived(const Key& key, const Make& make) const {
    return derived_.get<T>(key, make);
  }
  static constexpr size_t most_derived = 64;

 private:
  Layout() = default;
  void finish();
  void count_hash() const;
  void fetch() const;
  LayoutView extents() const;
  LayoutView host_arrays() const;
  int block_ = 0, heads_ = 0, rows_ = 0, cols_ = 0;
  mutable uint64_t hash_ = 0;  // this and the arrays change once, where they are fetched
  mutable std::vector<int32_t> row_offsets_, head_of_, row_of_, col_of_;
  mutable std::vector<int32_t> col_offsets_, transposed_, transposed_row_;
  struct DeviceCopy;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const DeviceCopy>> copies_;
  mutable Cache derived_{most_derived};
  int64_t nnz_ = 0;
  std::optional<LayoutArrays> made_;  // where the pattern was made on a device
  mutable std::once_flag fetched_;
  mutable std::atomic<bool> on_host_{true};
};

/** @brief Size, density, and the pattern drawn with one character a block (or a square of blocks):
 *  what is kept is filled. At most `width` characters wide. */
std::string to_string(const Layout& layout, int width = 64);
/** @brief The pattern as an SVG picture, heads side by side. */
std::string to_svg(const Layout& layout);

}  // namespace bs
