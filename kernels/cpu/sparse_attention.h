#pragma once
/** @file What the forward and the backward of fused attention share: operands as rows, the cutting
 * of a layout into squares of scores, and the masks inside them. */
#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/sparse_attention.h>

#include <limits>
#include <type_traits>
#include <vector>

namespace bs::cpu::attention {

using Index = int64_t;

/// The type of sums: float for 16-bit types.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// A tensor [batch, heads, sequence, head_dim] by its rows.
template <class T>
struct Rows {
  T* data;
  Index batch, head, row;

  explicit Rows(const Tensor& x)
      : data(x.data<std::remove_const_t<T>>()),
        batch(x.strides()[0]),
        head(x.strides()[1]),
        row(x.strides()[2]) {}
  T* at(Index b, Index h, Index i) const { return data + b * batch + h * head + i * row; }
};

/// Rows of a right operand are whole multiples of this many elements.
template <class W>
constexpr Index row_unit = std::max<Index>(Tile<W>::lanes / 2, 16 / sizeof(W));

/// `x` itself where its rows can be multiplied as they lie, else a dense copy in the type of sums,
/// rows padded by zeros to a multiple of `unit`.
template <class W>
Tensor operand(const Tensor& x, Index unit) {
  const int64_t width = ceil_div(x.size(3), unit) * unit;
  if (x.dtype() == dtype_of<W> && width == x.size(3)) return x;
  const Shape shape{x.size(0), x.size(1), x.size(2), width};
  Tensor y = width == x.size(3) ? Tensor::empty(shape, dtype_of<W>) : zeros(shape, dtype_of<W>);
  copy(x, y.slice(3, 0, x.size(3)));
  return y;
}

/// The shape of the work. Scores are made in squares of `side` keys and queries, blocks or parts of
/// them, so that every square lies below, on or above the diagonal as a whole.
template <class W>
struct Problem {
  LayoutView layout;
  Index batch, heads, group, queries, keys, head_dim, side;
  W scale;
  bool causal;
  const bool* keep;  ///< [batch, keys] or null

  Problem(const Tensor& q, const Tensor& k, const Layout& l, const SparseAttentionOptions& options)
      : layout(l.view(Device::cpu())),
        batch(q.size(0)),
        heads(q.size(1)),
        group(q.size(1) / k.size(1)),
        queries(q.size(2)),
        keys(k.size(2)),
        head_dim(q.size(3)),
        side(std::min<Index>(layout.block, Tile<W>::cols)),
        scale(static_cast<W>(options.scale)),
        causal(options.causal),
        keep(options.key_padding_mask.defined() ? options.key_padding_mask.data<bool>() : nullptr) {
  }

  Index layout_head(Index h) const { return layout.heads == 1 ? 0 : h; }
  /// First keys of the squares that the queries from `query` on meet, ascending.
  void list_keys(Index h, Index query, std::vector<Index>& found) const {
    const Index at = layout_head(h) * layout.rows + query / layout.block;
    found.clear();
    for (Index e = layout.row_offsets[at]; e < layout.row_offsets[at + 1]; ++e)
      for (Index part = 0; part < layout.block; part += side) {
        const Index key = Index{layout.col_of[e]} * layout.block + part;
        if (!causal || key <= query) found.push_back(key);
      }
  }
  /// First queries of the squares that the keys from `key` on meet, ascending.
  void list_queries(Index h, Index key, std::vector<Index>& found) const {
    const Index at = layout_head(h) * layout.cols + key / layout.block;
    found.clear();
    for (Index e = layout.col_offsets[at]; e < layout.col_offsets[at + 1]; ++e)
      for (Index part = 0; part < layout.block; part += side) {
        const Index query = Index{layout.transposed_row[e]} * layout.block + part;
        if (!causal || key <= query) found.push_back(query);
      }
  }
  /// Hides scores of one square, whose key r and query c meet at `r * Side + c`, or the other way
  /// about where the queries go down.
  template <int Side, bool queries_down>
  void hide(Index b, Index key, Index query, W* scores) const {
    constexpr W hidden = -std::numeric_limits<W>::infinity();
    if (causal && key == query)
      for (int r = 0; r < Side; ++r) {
        W* row = scores + r * Side;
        queries_down ? std::fill(row + r + 1, row + Side, hidden) : std::fill(row, row + r, hidden);
      }
    if (!keep) return;
    const bool* seen = keep + b * keys + key;
    for (int r = 0; r < Side; ++r) {
      W* row = scores + r * Side;
      if constexpr (queries_down) {
        for (int c = 0; c < Side; ++c) row[c] = seen[c] ? row[c] : hidden;
      } else if (!seen[r]) {
        std::fill(row, row + Side, hidden);
      }
    }
  }
};

/// Calls `body(std::integral_constant<int, side>)`.
template <class W, class Body>
void with_side(Index side, Body&& body) {
  constexpr int most = static_cast<int>(Tile<W>::cols);
  if constexpr (most >= 32)
    if (side == 32) return body(std::integral_constant<int, 32>{});
  if constexpr (most >= 16)
    if (side == 16) return body(std::integral_constant<int, 16>{});
  if constexpr (most >= 8)
    if (side == 8) return body(std::integral_constant<int, 8>{});
  if constexpr (most <= 4) body(std::integral_constant<int, most>{});
}

}  // namespace bs::cpu::attention
