#pragma once
/// @file
/// Packed operands and the register-blocked product under gemm() and the block-sparse kernels.
///
/// Block-sparse kernels call multiply_panels(), which sums a *chain* of small products in registers
/// and so touches C once, not once a block:
/// - DSD, C = S B: pack_b() the dense B once (whole depth K). For each block row and each strip of
///   columns, one call with m = k = block and one pair a stored block:
///   `a = values + e * block * block`, `b = packed + column(e) * block * kCols`;
///   layouts `direct_a(block, 1)` (S) or `direct_a(1, block)` (S transposed: the blocks of a
///   *column* of S), and `packed_b(K)`. No block is ever packed when it has type T already.
/// - DDS, C = A S, blocks of kCols and more, S as it lies: blocks are the right operand,
///   `direct_b(block)`; A is `direct_a(lda, 1)`, or pack_a()-ed once when it is reused a lot.
///   Otherwise compute C^T = S^T A^T: DSD with the strides of A and C exchanged (csc = ldc).
/// - SDD: pack_a() the left and pack_b() the right operand once over the whole depth; one call a
///   block, m = n = block, one pair of `packed_a_at` and `packed_b_at`; blocks narrower than a
///   panel start inside it.
/// The CPU tests may build it for any -march, but all translation units of one program must agree.
#include <cstddef>
#include <span>

namespace bs::cpu {

using Index = std::ptrdiff_t;

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

/// Shape of the register tile. Powers of two, so that sparse blocks of 8 to 128 are cut without a
/// remainder; kRows * 2 accumulators hide the latency of two multiply-adds a cycle.
template <class T>
struct Tile {
  static constexpr Index kLanes = kVectorBytes / static_cast<Index>(sizeof(T));
  static constexpr Index kRows = kVectorBytes == 64 ? 8 : 4;
  static constexpr Index kCols = 2 * kLanes;
  static constexpr Index kDepth = 256;  ///< Products are summed in steps of at most this depth.
};

/// Where element (lane i of panel p, depth l) lies: `p * panel + l * step + i * lane`.
/// `padded` says that partial panels may be read to their full width.
struct PanelLayout {
  Index panel, step, lane;
  bool padded;
};

template <class T>
constexpr PanelLayout packed_a(Index k) {
  return {Tile<T>::kRows * k, Tile<T>::kRows, 1, true};
}
template <class T>
constexpr PanelLayout packed_b(Index k) {
  return {Tile<T>::kCols * k, Tile<T>::kCols, 1, true};
}
/// A left operand read where it lies, any strides.
template <class T>
constexpr PanelLayout direct_a(Index row_stride, Index col_stride) {
  return {Tile<T>::kRows * row_stride, col_stride, row_stride, false};
}
/// A right operand read where it lies: contiguous rows, and n a multiple of kLanes / 2.
template <class T>
constexpr PanelLayout direct_b(Index row_stride) {
  return {Tile<T>::kCols, row_stride, 1, false};
}

/// Elements of a packed operand, the zero padding included.
template <class T>
constexpr Index packed_a_size(Index m, Index k) {
  return (m + Tile<T>::kRows - 1) / Tile<T>::kRows * Tile<T>::kRows * k;
}
template <class T>
constexpr Index packed_b_size(Index k, Index n) {
  return (n + Tile<T>::kCols - 1) / Tile<T>::kCols * Tile<T>::kCols * k;
}
/// Offset of (row i, depth l) in a packed left operand, of (depth l, column j) in a right one.
template <class T>
constexpr Index packed_a_at(Index k, Index i, Index l) {
  return i / Tile<T>::kRows * Tile<T>::kRows * k + l * Tile<T>::kRows + i % Tile<T>::kRows;
}
template <class T>
constexpr Index packed_b_at(Index k, Index l, Index j) {
  return j / Tile<T>::kCols * Tile<T>::kCols * k + l * Tile<T>::kCols + j % Tile<T>::kCols;
}

/// Packs an m x k left operand in panels of kRows rows, zero padded, converting to T.
template <class T, class In>
void pack_a(Index m, Index k, const In* a, Index rsa, Index csa, T* packed);

/// Packs a k x n right operand in panels of kCols columns, zero padded, converting to T.
template <class T, class In>
void pack_b(Index k, Index n, const In* b, Index rsb, Index csb, T* packed);

/// Packs only the panels [first, last) of a left or a right operand: a thread's share. A lane is a
/// row of the left, a column of the right: element (lane i, depth l) is `src[i * lane + l * step]`.
enum class Side { kLeft, kRight };
template <Side side, class T, class In>
void pack_panels(Index first, Index last, Index lanes, Index depth, const In* src, Index lane,
                 Index step, T* packed);

/// One product of a chain.
template <class T>
struct PanelPair {
  const T* a;
  const T* b;
};

/// C (m x n) = beta C + alpha * the sum over `pairs` of a (m x k) times b (k x n). All pairs share
/// the layouts. C is not read when beta is 0. Full speed wants csc = 1 and Out = T.
template <class T, class Out>
void multiply_panels(Index m, Index n, Index k, std::span<const PanelPair<T>> pairs, PanelLayout a,
                     PanelLayout b, T alpha, T beta, Out* c, Index rsc, Index csc);

/// C (rows x cols) = beta C + sum, where row i of `sum` starts at `sum + i * width`.
template <class T, class Out>
void store_sums(Index rows, Index cols, const T* sum, Index width, T beta, Out* c, Index rsc,
                Index csc);

/// Scratch of at least `count` elements, 64-byte aligned, that belongs to the calling thread and
/// this slot until the next request for it; it grows, and is kept for reuse. Slots 0 to 3 are
/// gemm()'s own; block-sparse kernels take 4 to 7.
template <class T>
T* scratch(int slot, Index count);

}  // namespace bs::cpu
