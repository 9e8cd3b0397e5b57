#pragma once
/// @file
/// Packed operands and the register-blocked product under gemm() and the block-sparse kernels.
///
/// Block-sparse kernels call multiply_panels(), which sums a *chain* of small products in registers
/// and so touches C once, not once a block:
/// - DSD, C = S B: pack_b() the dense B once (whole depth K). For each block row and each strip of
///   columns, one call with m = k = block and one pair a stored block:
///   `a = values + e * block * block`, `b = packed + column(e) * block * cols`;
///   layouts `direct_a(block, 1)` (S) or `direct_a(1, block)` (S transposed: the blocks of a
///   *column* of S), and `packed_b(K)`. No block is ever packed when it has type T already.
/// - DDS, C = A S, blocks of cols and more, S as it lies: blocks are the right operand,
///   `direct_b(block)`; A is `direct_a(lda, 1)`, or pack_a()-ed once when it is reused a lot.
///   Otherwise compute C^T = S^T A^T: DSD with the strides of A and C exchanged (csc = ldc).
/// - SDD: pack_a() the left and pack_b() the right operand once over the whole depth; one call a
///   block, m = n = block, one pair of `packed_a_at` and `packed_b_at`; blocks narrower than a
///   panel start inside it.
/// The CPU tests may build it for any -march, but all translation units of one program must agree.
#include <bs/lib/dtype.h>
#include <bs/lib/integers.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace bs::cpu {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

/// Two steps of the depth of an operand of bf16, as `vdpbf16ps` multiplies them and adds both
/// products to a float. It takes subnormal numbers for zero.
struct Bfloat16x2 {
  bfloat16 first, second;
};

/// What products of elements of a panel are summed in.
template <class T>
using PanelSum = std::conditional_t<std::is_same_v<T, Bfloat16x2>, float, T>;

/// Steps of the depth that an element of a panel holds.
template <class T>
inline constexpr int64_t panel_steps = std::is_same_v<T, Bfloat16x2> ? 2 : 1;

/// The depth of panels, in elements, for operands of depth k; an odd one ends with a zero.
template <class T>
constexpr int64_t panel_depth(int64_t k) {
  return ceil_div(k, panel_steps<T>);
}

/// Whether the processor multiplies Bfloat16x2.
bool multiplies_bfloat16x2();

/// Calls f with the Type that panels have for operands of type In, whose products are summed in T.
template <class T, class In, class F>
void visit_panel(F&& f) {
  if constexpr (vector_bytes == 64 && std::is_same_v<In, bfloat16> && std::is_same_v<T, float>) {
    if (multiplies_bfloat16x2()) return f(Type<Bfloat16x2>{});
  }
  f(Type<T>{});
}

/// Shape of the register tile. Powers of two, so that sparse blocks of 8 to 128 are cut without a
/// remainder; rows * 2 accumulators hide the latency of two multiply-adds a cycle.
template <class T>
struct Tile {
  static constexpr int64_t lanes = vector_bytes / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t rows = vector_bytes == 64 ? 8 : 4;
  static constexpr int64_t cols = 2 * lanes;
  /// Panels of dense products have at most this depth. Pairs are multiplied so fast that sums on
  /// their way to memory and back are to pass less often.
  static constexpr int64_t depth = std::is_same_v<T, Bfloat16x2> ? 512 : 256;
};

/// Where element (lane i of panel p, depth l) lies: `p * panel + l * step + i * lane`.
/// `padded` says that partial panels may be read to their full width.
struct PanelLayout {
  int64_t panel, step, lane;
  bool padded;
};

template <class T>
constexpr PanelLayout packed_a(int64_t k) {
  return {Tile<T>::rows * k, Tile<T>::rows, 1, true};
}
template <class T>
constexpr PanelLayout packed_b(int64_t k) {
  return {Tile<T>::cols * k, Tile<T>::cols, 1, true};
}
/// A left operand read where it lies, any strides.
template <class T>
constexpr PanelLayout direct_a(int64_t row_stride, int64_t col_stride) {
  return {Tile<T>::rows * row_stride, col_stride, row_stride, false};
}
/// A right operand read where it lies: contiguous rows, and n a multiple of lanes / 2.
template <class T>
constexpr PanelLayout direct_b(int64_t row_stride) {
  return {Tile<T>::cols, row_stride, 1, false};
}

/// Elements of a packed operand, the zero padding included.
template <class T>
constexpr int64_t packed_a_size(int64_t m, int64_t k) {
  return round_up(m, Tile<T>::rows) * k;
}
template <class T>
constexpr int64_t packed_b_size(int64_t k, int64_t n) {
  return round_up(n, Tile<T>::cols) * k;
}
/// Offset of (row i, depth l) in a packed left operand, of (depth l, column j) in a right one.
template <class T>
constexpr int64_t packed_a_at(int64_t k, int64_t i, int64_t l) {
  return i / Tile<T>::rows * Tile<T>::rows * k + l * Tile<T>::rows + i % Tile<T>::rows;
}
template <class T>
constexpr int64_t packed_b_at(int64_t k, int64_t l, int64_t j) {
  return j / Tile<T>::cols * Tile<T>::cols * k + l * Tile<T>::cols + j % Tile<T>::cols;
}

/// Packs an m x k left operand in panels of rows rows, zero padded, converting to T. Here and in
/// pack_b() and pack_panels() the depth is the operand's, elsewhere that of panels.
template <class T, class In>
void pack_a(int64_t m, int64_t k, const In* a, int64_t rsa, int64_t csa, T* packed);

/// Packs a k x n right operand in panels of cols columns, zero padded, converting to T.
template <class T, class In>
void pack_b(int64_t k, int64_t n, const In* b, int64_t rsb, int64_t csb, T* packed);

/// Packs only the panels [first, last) of a left or a right operand: a thread's share. A lane is a
/// row of the left, a column of the right: element (lane i, depth l) is `src[i * lane + l * step]`.
enum class Side { left, right };
template <Side side, class T, class In>
void pack_panels(int64_t first, int64_t last, int64_t lanes, int64_t depth, const In* src,
                 int64_t lane, int64_t step, T* packed);

/// One product of a chain.
template <class T>
struct PanelPair {
  const T* a;
  const T* b;
};

/// C (m x n) = beta C + alpha * the sum over `pairs` of a (m x k) times b (k x n). All pairs share
/// the layouts. C is not read when beta is 0. Full speed wants csc = 1 and Out = T.
template <class T, class Out>
void multiply_panels(int64_t m, int64_t n, int64_t k, std::span<const PanelPair<T>> pairs,
                     PanelLayout a, PanelLayout b, PanelSum<T> alpha, PanelSum<T> beta, Out* c,
                     int64_t rsc, int64_t csc);

/// C (rows x cols) = beta C + sum, where row i of `sum` starts at `sum + i * width`.
template <class T, class Out>
void store_sums(int64_t rows, int64_t cols, const T* sum, int64_t width, T beta, Out* c,
                int64_t rsc, int64_t csc);

/// Scratch of at least `count` elements, 64-byte aligned, that belongs to the calling thread and
/// this slot until the next request for it; it grows, and is kept for reuse. Slots 0 to 3 are
/// gemm()'s own; block-sparse kernels take 4 to 7.
template <class T>
T* scratch(int slot, int64_t count);

}  // namespace bs::cpu
