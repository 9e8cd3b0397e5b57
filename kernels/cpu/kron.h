#pragma once
/** @file What the passes of kron_matmul on the CPU share: factors packed once, and the two products
 *  on a tile in the caches, [outer, p, inner] to [outer, q, inner] and the sum for a factor. No
 * axis is ever moved: one that is not the fastest multiplies from the left. */
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/kron.h>

#include <algorithm>
#include <vector>

namespace bs::cpu {

/** @brief A factor [p, q], in panels for either side. */
template <class T>
struct PackedFactor {
  int64_t p = 1, q = 1;
  std::vector<T> right;  ///< W, for the fastest axis
  std::vector<T> left;   ///< its transpose, for the others
};

/** @brief Packs element (i, j) of `w` at `w[i * row + j * col]`. */
template <class T, class In>
PackedFactor<T> packed_factor(const In* w, int64_t p, int64_t q, int64_t row, int64_t col) {
  PackedFactor<T> f{p, q, std::vector<T>(static_cast<size_t>(packed_b_size<T>(p, q))),
                    std::vector<T>(static_cast<size_t>(packed_a_size<T>(q, p)))};
  pack_b(p, q, w, row, col, f.right.data());
  pack_a(q, p, w, col, row, f.left.data());
  return f;
}

/** @brief y [outer, q, inner] = the factor on the middle axis of x [outer, p, inner]. */
template <class T>
void kron_step(const PackedFactor<T>& factor, int64_t outer, int64_t inner, const T* x, T* y);

/** @brief dw [p, q] += the sum over outer and inner of h [outer, p, inner] g [outer, q, inner]. */
template <class T>
void kron_contract(int64_t outer, int64_t p, int64_t q, int64_t inner, const T* h, const T* g,
                   T* dw);

/** @brief How a pass is cut into tiles: `rows` of the outer extent where a tile has all of the
 * inner one, else one row and `chunk` of the inner extent. */
struct KronTiles {
  std::vector<KronAxis> axes;  ///< slowest first
  int64_t p = 1, q = 1;        ///< products of the axes
  int64_t widest = 1;          ///< the most elements between factors, of one row and inner element
  int64_t outer = 0, inner = 0;
  int64_t rows = 1, chunk = 1;
  int64_t row_tiles = 0, chunks = 0;

  KronTiles(int64_t outer_, int64_t inner_, const std::vector<Tensor>& factors);
  int64_t count() const { return row_tiles * chunks; }
  /** @brief Multiply-adds of one group. */
  double work() const;

  struct Place {
    int64_t row, rows, column, columns;
  };
  Place place(int64_t tile) const {
    const int64_t row = tile / chunks * rows, column = tile % chunks * chunk;
    return {row, std::min(rows, outer - row), column, std::min(chunk, inner - column)};
  }
  int64_t elements(const Place& at) const { return at.rows * at.columns * widest; }

  /** @brief Extents around axis `i` while the axes behind it have been transformed. */
  int64_t outer_of(const Place& at, size_t i) const {
    int64_t n = at.rows;
    for (size_t k = 0; k < i; ++k) n *= axes[k].p;
    return n;
  }
  int64_t inner_of(const Place& at, size_t i) const {
    int64_t n = at.columns;
    for (size_t k = i + 1; k < axes.size(); ++k) n *= axes[k].q;
    return n;
  }
};

/** @brief A tile of [outer, extent, inner] as values that are computed in, where it lies if it may,
 *  else in `buffer`. */
template <class T, class In>
const T* read_tile(const KronTiles& t, const KronTiles::Place& at, int64_t extent, const In* x,
                   T* buffer) {
  const In* const from = x + at.row * extent * t.inner + at.column;
  if (at.columns == t.inner) {
    if constexpr (std::is_same_v<T, In>) return from;
    widen(at.rows * extent * t.inner, from, buffer);
  } else {
    for (int64_t i = 0; i < at.rows * extent; ++i)
      widen(at.columns, from + i * t.inner, buffer + i * at.columns);
  }
  return buffer;
}

/** @brief Where a tile of results can be computed: at its place, or null. */
template <class T, class Out>
T* place_of_tile(const KronTiles& t, const KronTiles::Place& at, int64_t extent, Out* y) {
  if constexpr (std::is_same_v<T, Out>)
    if (at.columns == t.inner) return y + at.row * extent * t.inner;
  return nullptr;
}

/** @brief The way back of read_tile, from `buffer`. */
template <class T, class Out>
void write_tile(const KronTiles& t, const KronTiles::Place& at, int64_t extent, const T* buffer,
                Out* y) {
  Out* const to = y + at.row * extent * t.inner + at.column;
  if (at.columns == t.inner) return narrow(at.rows * extent * t.inner, buffer, to);
  for (int64_t i = 0; i < at.rows * extent; ++i)
    narrow(at.columns, buffer + i * at.columns, to + i * t.inner);
}

}  // namespace bs::cpu
