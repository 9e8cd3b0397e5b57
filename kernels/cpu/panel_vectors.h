#pragma once
/** @file Vectors of panels, and how they are transposed. */
#include <bs/kernels/cpu/panels.h>

#include <utility>

namespace bs::cpu {

/// Vectors of GCC: `Aligned` lives in registers, `Loose` may alias and lie anywhere. Of pairs they
/// hold the bits.
template <class T, int Bytes>
struct Simd {
  using Lane = PanelSum<T>;
  typedef Lane Aligned __attribute__((vector_size(Bytes)));
  typedef Lane Loose __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};

/// One step of the recursive transposition: exchanges the off-diagonal quarters of size S.
template <int S, class V, std::size_t... I>
inline void exchange(V& x, V& y, std::index_sequence<I...>) {
  constexpr int n = sizeof...(I);
  constexpr auto low = [](int i) { return (i & S) ? n + i - S : i; };
  constexpr auto high = [](int i) { return (i & S) ? n + i : i + S; };
  const V first = __builtin_shufflevector(x, y, low(I)...);
  y = __builtin_shufflevector(x, y, high(I)...);
  x = first;
}

template <int S, int N, class V>
inline void transpose(V (&rows)[N]) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    if ((i & S) == 0) exchange<S>(rows[i], rows[i + S], std::make_index_sequence<N>{});
  }
  if constexpr (2 * S < N) transpose<2 * S, N>(rows);
}

}  // namespace bs::cpu
