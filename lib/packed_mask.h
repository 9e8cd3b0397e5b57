#pragma once
/** @file Masks of single elements over the blocks of a pattern, a bit each. */
#include <bs/lib/layout.h>

#include <cstdint>
#include <functional>

namespace bs {

/** @brief Which elements see each other; made by pack_mask(). Blocks of which all or nothing is
 * seen take no bits. */
class PackedMask {
 public:
  static constexpr int32_t none_seen = -1, all_seen = -2;
  PackedMask() = default;  ///< no mask

  bool defined() const { return layout_ != nullptr; }
  /** @brief The blocks of which anything is seen. */
  const LayoutPtr& layout() const { return layout_; }
  /** @brief i32 [heads, rows, cols]: a block's place in bits(), or one of the two above. */
  const Tensor& numbers() const { return numbers_; }
  /** @brief u8 [blocks, block, block / 8]: bit c % 8 of byte c / 8 of a row is that of column c. */
  const Tensor& bits() const { return bits_; }
  /** @brief The same on another device. */
  PackedMask to(Device device) const;

 private:
  friend class MaskPacker;
  PackedMask(LayoutPtr layout, Tensor numbers, Tensor bits);
  LayoutPtr layout_;
  Tensor numbers_, bits_;
};

/** @brief Packs a mask. Made once, it is used for many calls.
 *  @param[in] mask [rows, cols] for one head, [heads, rows, cols], or [batch, heads, rows, cols],
 * which gives batch * heads heads. Boolean or integer: not 0 where a row sees a column. Floating:
 * added to scores, 0 where it sees, -infinity where it does not
 *  @param[in] block elements a side of a block; the last ones may reach over the end
 *  @return on the mask's device; the host waits for it
 *  @throws Error for another rank or block size, or a floating mask of other values. */
PackedMask pack_mask(const Tensor& mask, int block);

/** @brief Packs a function of (head, row, column), which is asked within the blocks of a pattern
 * only. Nothing grows with the dense mask but 4 bytes for each of its blocks.
 *  @param[in] rows,cols elements; they end in the last block row and the last block column of
 * `within`
 *  @throws Error where they do not. */
PackedMask pack_mask(const LayoutPtr& within, int64_t rows, int64_t cols,
                     const std::function<bool(int64_t, int64_t, int64_t)>& sees,
                     Device device = Device::cpu());

}  // namespace bs
