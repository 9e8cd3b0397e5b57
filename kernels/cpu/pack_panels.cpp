#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panel_vectors.h>

#include <algorithm>

namespace bs::cpu {
namespace {

/// The element of a panel that begins at `src`, where `left` steps of the depth are left.
template <class T, class In>
T panel_element(const In* src, int64_t step, int64_t left) {
  if constexpr (std::is_same_v<T, Bfloat16x2>) {
    return {src[0], left > 1 ? src[step] : In()};
  } else {
    return convert<T>(*src);
  }
}

/// Packs N lanes whose depth is contiguous, N elements at a time, through registers.
template <class T, int N, class In>
void pack_transposed(int64_t depth, const In* src, int64_t lane, int64_t width, T* dst) {
  using S = Simd<T, N* static_cast<int>(sizeof(T))>;
  constexpr int64_t steps = panel_steps<T>;
  int64_t l = 0;
  for (; (l + N) * steps <= depth; l += N) {
    typename S::Aligned rows[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      if constexpr (sizeof(T) == steps * sizeof(In)) {
        rows[i] = *reinterpret_cast<const typename S::Loose*>(src + i * lane + l * steps);
      } else {
        widen(N, src + i * lane + l, reinterpret_cast<T*>(&rows[i]));
      }
    }
    transpose<1, N>(rows);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      *reinterpret_cast<typename S::Loose*>(dst + (l + i) * width) = rows[i];
    }
  }
  for (; l < panel_depth<T>(depth); ++l) {
    for (int i = 0; i < N; ++i)
      dst[l * width + i] = panel_element<T>(src + i * lane + l * steps, 1, depth - l * steps);
  }
}

/// Packs one panel of up to W lanes; fast where the depth is contiguous.
template <class T, int W, class In>
void pack_panel(int64_t lanes, int64_t depth, const In* src, int64_t lane, int64_t step, T* dst) {
  constexpr int N = static_cast<int>(Tile<T>::rows);
  int64_t i = 0;
  if (step == 1) {
    for (; i + N <= lanes; i += N) {
      pack_transposed<T, N>(depth, src + i * lane, lane, W, dst + i);
    }
  }
  if (i == W) return;
  for (int64_t l = 0; l < depth; l += panel_steps<T>, dst += W) {
    for (int64_t j = i; j < lanes; ++j)
      dst[j] = panel_element<T>(src + j * lane + l * step, step, depth - l);
    for (int64_t j = lanes; j < W; ++j) dst[j] = T();
  }
}

/// Packs a row of a panel, whose lanes are neighbours.
template <class T, int W, class In>
void pack_row(const In* src, int64_t step, int64_t left, T* dst) {
  if constexpr (std::is_same_v<T, Bfloat16x2>) {
    static const In zeros[W] = {};
    const In* second = left > 1 ? src + step : zeros;
    constexpr int N = std::min(W, vector_bytes / 4);
    using Bits = Simd<uint16_t, 2 * N>;
    using Pairs = Simd<uint32_t, 4 * N>;
    const auto wide = [](const In* at) {
      return __builtin_convertvector(*reinterpret_cast<const typename Bits::Loose*>(at),
                                     typename Pairs::Aligned);
    };
    for (int i = 0; i < W; i += N)
      *reinterpret_cast<typename Pairs::Loose*>(dst + i) = wide(src + i) | wide(second + i) << 16;
  } else {
    widen(W, src, dst);
  }
}

}  // namespace

template <Side side, class T, class In>
void pack_panels(int64_t first, int64_t last, int64_t lanes, int64_t depth, const In* src,
                 int64_t lane, int64_t step, T* dst) {
  if (depth == 0) return;  // src may be null then
  constexpr int W = static_cast<int>(side == Side::left ? Tile<T>::rows : Tile<T>::cols);
  // Where lanes are contiguous a few panels go together: a visit to a row uses whole cache lines.
  constexpr int64_t group = 8, steps = panel_steps<T>;
  const int64_t packed_depth = panel_depth<T>(depth);
  int64_t p = first;
  if (lane == 1) {
    const int64_t whole = std::min(last, lanes / W);
    for (int64_t next = p; p < whole; p = next) {
      next = std::min(whole, p + group);
      for (int64_t l = 0; l < packed_depth; ++l) {
        const In* row = src + l * steps * step;
        for (int64_t q = p; q < next; ++q)
          pack_row<T, W>(row + q * W, step, depth - l * steps, dst + (q * packed_depth + l) * W);
      }
    }
  }
  for (; p < last; ++p) {
    const int64_t i = p * W;
    pack_panel<T, W>(std::min<int64_t>(W, lanes - i), depth, src + i * lane, lane, step,
                     dst + i * packed_depth);
  }
}

template <class T, class In>
void pack_a(int64_t m, int64_t k, const In* a, int64_t rsa, int64_t csa, T* packed) {
  pack_panels<Side::left>(0, ceil_div(m, Tile<T>::rows), m, k, a, rsa, csa, packed);
}

template <class T, class In>
void pack_b(int64_t k, int64_t n, const In* b, int64_t rsb, int64_t csb, T* packed) {
  pack_panels<Side::right>(0, ceil_div(n, Tile<T>::cols), n, k, b, csb, rsb, packed);
}

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses
#define BS_PACK(T, In)                                                                           \
  template void pack_a(int64_t, int64_t, const In*, int64_t, int64_t, T*);                       \
  template void pack_b(int64_t, int64_t, const In*, int64_t, int64_t, T*);                       \
  template void pack_panels<Side::left>(int64_t, int64_t, int64_t, int64_t, const In*, int64_t,  \
                                        int64_t, T*);                                            \
  template void pack_panels<Side::right>(int64_t, int64_t, int64_t, int64_t, const In*, int64_t, \
                                         int64_t, T*);
// NOLINTEND(bugprone-macro-parentheses)

BS_PACK(float, float)
BS_PACK(float, half)
BS_PACK(float, bfloat16)
BS_PACK(double, double)
BS_PACK(double, float)
#ifdef __AVX512F__
BS_PACK(Bfloat16x2, bfloat16)
#endif

}  // namespace bs::cpu
