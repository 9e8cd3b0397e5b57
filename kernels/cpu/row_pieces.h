#pragma once
/** @file Rows cut into pieces of a constant length. */
#include <bs/kernels/cpu/rows.h>

#include <array>
#include <type_traits>

namespace bs::cpu {

/** @brief Elements of a row that are computed together: of a constant number, what is widened stays
 * in registers. */
inline constexpr int64_t piece = 64;

/** @brief Calls f(begin, length) for the pieces of a row; only the last length is not constant. */
template <class F>
void for_pieces(int64_t n, const F& f) {
  int64_t begin = 0;
  for (; begin + piece <= n; begin += piece) f(begin, std::integral_constant<int64_t, piece>{});
  if (begin < n) f(begin, n - begin);
}

/** @brief A piece of a row of T as Wide<T>. */
template <class T>
using RowPieceBuffer = RowBuffer<T, std::array<Wide<T>, piece>>;

}  // namespace bs::cpu
