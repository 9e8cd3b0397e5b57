#pragma once
/** @file What the forward and the backward of fused attention share: the cutting of a layout into
 *  squares of scores, and the masks inside them. */
#include <bs/kernels/cpu/sparse_attention_operands.h>
#include <bs/kernels/sparse_attention_check.h>

#include <limits>
#include <utility>
#include <vector>

namespace bs::cpu::attention {

/// Which of a ragged batch a call works on, and where its rows lie in lse.
struct Sequence {
  int64_t number = 0;     ///< its place in the batch
  int64_t first_row = 0;  ///< of its queries
  int64_t rows = 0;       ///< queries of all sequences
};

/// The shape of the work. Scores are made in squares of `side` keys and queries, blocks or parts of
/// them. Queries are numbered by their places in the layout.
template <class W>
struct Problem {
  LayoutView layout;
  Sequence sequence;
  int64_t batch, heads, group, first_query, end_query, keys, head_dim, value_dim, side;
  detail::AttentionBand band;
  W scale;
  const bool* keep;  ///< [batch, keys] or null
  Rows<const bool> mask = {};
  MaskBits packed;
  Rows<const W> bias = {};

  Problem(const Tensor& q, const Tensor& k, const Tensor& v, const Layout& l,
          const SparseAttentionOptions& options, const Sequence& of)
      : layout(l.view(Device::cpu())),
        sequence(of),
        batch(q.size(0)),
        heads(q.size(1)),
        group(q.size(1) / k.size(1)),
        first_query(*options.first_query),
        end_query(first_query + q.size(2)),
        keys(k.size(2)),
        head_dim(q.size(3)),
        value_dim(v.size(3)),
        side(std::min<int64_t>(layout.block, Tile<W>::cols)),
        band(detail::attention_band(options)),
        scale(static_cast<W>(options.scale)),
        keep(options.key_padding_mask.defined() ? options.key_padding_mask.data<bool>() : nullptr),
        packed(options.packed_mask) {
    if (options.mask.defined()) mask = Rows<const bool>(options.mask, first_query);
  }

  int64_t query_from() const { return first_query / side * side; }
  int64_t query_strips() const { return ceil_div(end_query - query_from(), side); }
  int64_t key_strips() const { return ceil_div(keys, side); }
  bool has(int64_t query) const { return query >= first_query && query < end_query; }
  int64_t row_of(int64_t b, int64_t h, int64_t query) const {
    return (b * heads + h) * sequence.rows + sequence.first_row + query - first_query;
  }
  int64_t layout_head(int64_t b, int64_t h) const {
    return detail::attention_layout_head(layout.heads, heads, b + sequence.number, h);
  }
  /// Whether any pair of a square, or every one, lies in the band.
  bool meets(int64_t key, int64_t query) const {
    return key - query - side + 1 <= band.last && key - query + side - 1 >= band.first;
  }
  bool within(int64_t key, int64_t query) const {
    return key - query + side - 1 <= band.last && key - query - side + 1 >= band.first;
  }
  /// First keys of the squares that the queries from `query` on meet, ascending.
  void list_keys(int64_t b, int64_t h, int64_t query, std::vector<int64_t>& found) const {
    const int64_t at = layout_head(b, h) * layout.rows + query / layout.block;
    found.clear();
    for (int64_t e = layout.row_offsets[at]; e < layout.row_offsets[at + 1]; ++e)
      for (int64_t part = 0; part < layout.block; part += side) {
        const int64_t key = int64_t{layout.col_of[e]} * layout.block + part;
        if (key < keys && meets(key, query)) found.push_back(key);
      }
  }
  /// First queries of the squares that the keys from `key` on meet, ascending.
  void list_queries(int64_t b, int64_t h, int64_t key, std::vector<int64_t>& found) const {
    const int64_t at = layout_head(b, h) * layout.cols + key / layout.block;
    found.clear();
    for (int64_t e = layout.col_offsets[at]; e < layout.col_offsets[at + 1]; ++e)
      for (int64_t part = 0; part < layout.block; part += side) {
        const int64_t query = int64_t{layout.transposed_row[e]} * layout.block + part;
        const bool exists = query + side > first_query && query < end_query;
        if (exists && meets(key, query)) found.push_back(query);
      }
  }
  /// Whether all but the layout lets `query` see `key`.
  bool sees(int64_t b, int64_t h, int64_t query, int64_t key) const {
    if (key - query < band.first || key - query > band.last) return false;
    if (keep != nullptr && !keep[b * keys + key]) return false;
    if (mask.data != nullptr && !mask.at(b, h, query)[key]) return false;
    if (packed.numbers != nullptr) {
      if (!packed.sees(packed_number(b, h, query, key), query, key)) return false;
    }
    return !bias.data || bias.at(b, h, query)[key] != -std::numeric_limits<W>::infinity();
  }
  /// Hides scores of one square, whose key r and query c meet at `r * Side + c`, or the other way
  /// about where the queries go down.
  template <int Side, bool queries_down>
  void hide(int64_t b, int64_t h, int64_t key, int64_t query, W* scores) const {
    constexpr W hidden = -std::numeric_limits<W>::infinity();
    const bool whole = key + Side <= keys && has(query) && has(query + Side - 1);
    const bool plain = whole && !mask.data && !bias.data;
    if (packed.numbers != nullptr &&
        packed.hide<Side, queries_down>(packed_number(b, h, query, key), key, query, scores))
      return;
    if (plain && !keep && within(key, query)) return;
    for (int r = 0; r < Side; ++r) {
      W* row = scores + r * Side;
      const auto [from, to] =
          queries_down ? seen_keys(query + r, key) : seen_queries(key + r, query);
      std::fill(row, row + from, hidden);
      std::fill(row + to, row + Side, hidden);
      if (keep != nullptr) {
        const bool* seen = keep + b * keys + key;
        if (!queries_down && from < to && !seen[r]) std::fill(row, row + Side, hidden);
        if (queries_down)
          for (int64_t c = from; c < to; ++c) row[c] = seen[c] ? row[c] : hidden;
      }
      if (plain) continue;
      for (int64_t c = from; c < to; ++c) {
        const int64_t i = query + (queries_down ? r : c);
        const int64_t j = key + (queries_down ? c : r);
        if (!sees(b, h, i, j)) row[c] = hidden;
      }
    }
  }

 private:
  int32_t packed_number(int64_t b, int64_t h, int64_t query, int64_t key) const {
    return packed.number(detail::attention_layout_head(packed.heads, heads, b + sequence.number, h),
                         query, key);
  }
  using Range = std::pair<int64_t, int64_t>;
  /// Of the square's keys from `key` on those, and of its queries from `query` on those, that the
  /// band and the ends of the sequences leave.
  Range seen_keys(int64_t query, int64_t key) const {
    if (!has(query)) return {0, 0};
    return clamped(band.first + query - key, std::min(band.last + query, keys - 1) - key);
  }
  Range seen_queries(int64_t key, int64_t query) const {
    if (key >= keys) return {0, 0};
    return clamped(std::max(key - band.last, first_query) - query,
                   std::min(key - band.first, end_query - 1) - query);
  }
  Range clamped(int64_t first, int64_t last) const {
    const int64_t from = std::clamp<int64_t>(first, 0, side);
    return {from, std::clamp<int64_t>(last + 1, from, side)};
  }
};

/// Calls `body(std::integral_constant<int, side>)`.
template <class W, class Body>
void with_side(int64_t side, Body&& body) {
  constexpr int most = Tile<W>::cols;
  if constexpr (most >= 32)
    if (side == 32) return body(std::integral_constant<int, 32>{});
  if constexpr (most >= 16)
    if (side == 16) return body(std::integral_constant<int, 16>{});
  if constexpr (most >= 8)
    if (side == 8) return body(std::integral_constant<int, 8>{});
  if constexpr (most <= 4) body(std::integral_constant<int, most>{});
}

}  // namespace bs::cpu::attention
