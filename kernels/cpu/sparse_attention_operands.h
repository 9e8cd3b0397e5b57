#pragma once
/** @file Operands of fused attention as rows, and its packed mask by pointers. */
#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/fill.h>
#include <bs/lib/packed_mask.h>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace bs::cpu::attention {

/// The type of sums: float for 16-bit types.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// A tensor [batch, heads, sequence, head_dim] by its rows, the first of which is number `from`.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, from = 0;
  const int64_t* table =
      nullptr;  ///< where rows lie in pages: the page of row i is table[i / page]
  int64_t page = 1;
  Rows() = default;
  explicit Rows(const Tensor& x, int64_t first = 0)
      : data(x.data<std::remove_const_t<T>>()),
        batch(x.strides()[0]),
        head(x.strides()[1]),
        row(x.strides()[2]),
        from(first) {}
  T* at(int64_t b, int64_t h, int64_t i) const {
    if (table != nullptr) i = table[i / page] * page + i % page;
    return data + b * batch + h * head + (i - from) * row;
  }
};

/// Rows of a right operand are whole multiples of this many elements.
template <class W>
constexpr int64_t row_unit = std::max<int64_t>(Tile<W>::lanes / 2, 16 / sizeof(W));

/// `x` itself where it has elements of type W in rows of a multiple of `unit` and begins and ends
/// with a square; else a dense copy, padded by zeros, that begins `before` rows earlier.
template <class W>
Tensor operand(const Tensor& x, int64_t unit, int64_t before, int64_t side) {
  const int64_t width = round_up(x.size(3), unit);
  const int64_t length = round_up(before + x.size(2), side);
  if (x.dtype() == dtype_of<W> && width == x.size(3) && length == x.size(2)) return x;
  const Shape shape{x.size(0), x.size(1), length, width};
  const bool whole = width == x.size(3) && length == x.size(2);
  Tensor y = whole ? Tensor::empty(shape, dtype_of<W>) : zeros(shape, dtype_of<W>);
  copy(x, y.slice(3, 0, x.size(3)).slice(2, before, before + x.size(2)));
  return y;
}

/// A packed mask by its pointers.
struct MaskBits {
  const int32_t* numbers = nullptr;
  const uint8_t* bits = nullptr;
  int64_t heads = 0, rows = 0, cols = 0, block = 1;

  explicit MaskBits(const PackedMask& mask) {
    if (!mask.defined()) return;
    const Layout& l = *mask.layout();
    numbers = mask.numbers().data<int32_t>();
    bits = mask.bits().data<uint8_t>();
    heads = l.heads();
    rows = l.rows();
    cols = l.cols();
    block = l.block();
  }
  int32_t number(int64_t head, int64_t query, int64_t key) const {
    return numbers[(head * rows + query / block) * cols + key / block];
  }
  /// Whether the block with this number, see PackedMask, has the pair.
  bool sees(int32_t number, int64_t query, int64_t key) const {
    if (number < 0) return number == PackedMask::all_seen;
    const int64_t row = number * block + query % block, col = key % block;
    return (bits[row * (block / 8) + col / 8] >> (col % 8) & 1) != 0;
  }
  /// Hides scores of a square in that block; true where it hides all of them.
  template <int Side, bool queries_down, class W>
  bool hide(int32_t number, int64_t key, int64_t query, W* scores) const {
    constexpr W hidden = -std::numeric_limits<W>::infinity();
    if (number == PackedMask::none_seen) std::fill_n(scores, Side * Side, hidden);
    if (number < 0) return number == PackedMask::none_seen;
    for (int r = 0; r < Side; ++r)
      for (int c = 0; c < Side; ++c)
        if (!sees(number, query + (queries_down ? r : c), key + (queries_down ? c : r)))
          scores[r * Side + c] = hidden;
    return false;
  }
};

}  // namespace bs::cpu::attention
