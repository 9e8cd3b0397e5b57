#include <bs/kernels/cpu/kron.h>

#include <array>
#include <cstring>

namespace bs::cpu {

namespace {

/// The narrowest vector of a tile: results in rows of a multiple of it need no packing.
template <class T>
constexpr int64_t narrowest = std::max(16, vector_bytes / 2) / static_cast<int64_t>(sizeof(T));

constexpr int pack_slot = 4, turn_slot = 5;

template <class T, int Bytes>
struct Vector {
  typedef T Aligned __attribute__((vector_size(Bytes)));
  typedef T Loose __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
  static constexpr int64_t lanes = Bytes / static_cast<int64_t>(sizeof(T));
};

/// The sum of a vector's lanes, by halves.
template <class T, int Bytes>
T sum_of_lanes(const typename Vector<T, Bytes>::Aligned& v) {
  if constexpr (Bytes > 16) {
    typename Vector<T, Bytes / 2>::Aligned half[2];
    std::memcpy(&half, &v, sizeof half);
    return sum_of_lanes<T, Bytes / 2>(half[0] + half[1]);
  } else {
    T total = v[0];
    for (int64_t l = 1; l < Vector<T, Bytes>::lanes; ++l) total += v[l];
    return total;
  }
}

/// Adds M x N sums along the inner axis to `dw`; they stay in registers from first to last.
template <class T, int Bytes, int M, int N>
void dot_tile(int64_t outer, int64_t p, int64_t q, int64_t inner, const T* h, const T* g, T* dw) {
  using V = Vector<T, Bytes>;
  typename V::Aligned sum[M][N] = {};
  for (int64_t o = 0; o < outer; ++o) {
    const T* a = h + o * p * inner;
    const T* b = g + o * q * inner;
    for (int64_t i = 0; i < inner; i += V::lanes) {
      typename V::Aligned right[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n)
        right[n] = *reinterpret_cast<const typename V::Loose*>(b + n * inner + i);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const typename V::Aligned left =
            *reinterpret_cast<const typename V::Loose*>(a + m * inner + i);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sum[m][n] += left * right[n];
      }
    }
  }
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) dw[m * q + n] += sum_of_lanes<T, Bytes>(sum[m][n]);
}

template <class T, int Bytes>
void dot_tiles(int64_t outer, int64_t p, int64_t q, int64_t inner, const T* h, const T* g, T* dw) {
  for (int64_t i = 0; i < p;) {
    const bool four = p - i >= 4;
    for (int64_t j = 0; j < q;) {
      const bool wide = q - j >= 4;
      const T* const a = h + i * inner;
      const T* const b = g + j * inner;
      T* const to = dw + i * q + j;
      if (four && wide) {
        dot_tile<T, Bytes, 4, 4>(outer, p, q, inner, a, b, to);
      } else if (four) {
        dot_tile<T, Bytes, 4, 1>(outer, p, q, inner, a, b, to);
      } else if (wide) {
        dot_tile<T, Bytes, 1, 4>(outer, p, q, inner, a, b, to);
      } else {
        dot_tile<T, Bytes, 1, 1>(outer, p, q, inner, a, b, to);
      }
      j += wide ? 4 : 1;
    }
    i += four ? 4 : 1;
  }
}

/// The same as a chain of products h g^T, g packed. With as many columns as a tile has, that pays:
/// no sum across lanes, and operands of more results a load.
template <class T>
void add_products(int64_t outer, int64_t p, int64_t q, int64_t inner, const T* h, const T* g,
                  T* dw) {
  constexpr int64_t most = 16, elements = int64_t{1} << 15;  // of a chain
  const int64_t size = packed_b_size<T>(inner, q);
  const int64_t at_once = std::clamp<int64_t>(elements / size, 1, std::min(most, outer));
  T* const packed = scratch<T>(pack_slot, at_once * size);
  std::array<PanelPair<T>, most> pairs;
  for (int64_t o = 0; o < outer; o += at_once) {
    const int64_t count = std::min(at_once, outer - o);
    for (int64_t i = 0; i < count; ++i, h += p * inner, g += q * inner) {
      pack_b(inner, q, g, int64_t{1}, inner, packed + i * size);
      pairs[static_cast<size_t>(i)] = {h, packed + i * size};
    }
    multiply_panels<T, T>(p, q, inner, std::span(pairs).first(static_cast<size_t>(count)),
                          direct_a<T>(inner, 1), packed_b<T>(inner), T(1), T(1), dw, q, 1);
  }
}

/// dw += h^T g for h [depth, p] and g [depth, q].
template <class T>
void add_product(int64_t p, int64_t q, int64_t depth, const T* h, const T* g, T* dw) {
  PanelLayout right = direct_b<T>(q);
  const T* b = g;
  if (q % narrowest<T> != 0) {
    T* const packed = scratch<T>(pack_slot, packed_b_size<T>(depth, q));
    pack_b(depth, q, g, q, int64_t{1}, packed);
    right = packed_b<T>(depth);
    b = packed;
  }
  const PanelPair<T> pair{h, b};
  multiply_panels<T, T>(p, q, depth, std::span(&pair, 1), direct_a<T>(1, p), right, T(1), T(1), dw,
                        q, 1);
}

/// [outer, extent, inner] as [outer, inner, extent].
template <class T>
void turn(int64_t outer, int64_t extent, int64_t inner, const T* x, T* y) {
  for (int64_t o = 0; o < outer; ++o, x += extent * inner, y += extent * inner)
    for (int64_t e = 0; e < extent; ++e)
      for (int64_t i = 0; i < inner; ++i) y[i * extent + e] = x[e * inner + i];
}

}  // namespace

template <class T>
void kron_step(const PackedFactor<T>& f, int64_t outer, int64_t inner, const T* x, T* y) {
  if (inner == 1) {
    const PanelPair<T> pair{x, f.right.data()};
    return multiply_panels<T, T>(outer, f.q, f.p, std::span(&pair, 1), direct_a<T>(f.p, 1),
                                 packed_b<T>(f.p), T(1), T(0), y, f.q, 1);
  }
  const bool direct = inner % narrowest<T> == 0;
  T* const packed = direct ? nullptr : scratch<T>(pack_slot, packed_b_size<T>(f.p, inner));
  const PanelLayout right = direct ? direct_b<T>(inner) : packed_b<T>(f.p);
  for (int64_t o = 0; o < outer; ++o, x += f.p * inner, y += f.q * inner) {
    if (!direct) pack_b(f.p, inner, x, inner, int64_t{1}, packed);
    const PanelPair<T> pair{f.left.data(), direct ? x : packed};
    multiply_panels<T, T>(f.q, inner, f.p, std::span(&pair, 1), packed_a<T>(f.p), right, T(1), T(0),
                          y, inner, 1);
  }
}

template <class T>
void kron_contract(int64_t outer, int64_t p, int64_t q, int64_t inner, const T* h, const T* g,
                   T* dw) {
  if (inner == 1) return add_product(p, q, outer, h, g, dw);
  if (q >= Tile<T>::cols && p >= Tile<T>::rows) return add_products(outer, p, q, inner, h, g, dw);
  if (inner % Vector<T, vector_bytes>::lanes == 0)
    return dot_tiles<T, vector_bytes>(outer, p, q, inner, h, g, dw);
  if (inner % narrowest<T> == 0)
    return dot_tiles<T, std::max(16, vector_bytes / 2)>(outer, p, q, inner, h, g, dw);
  T* const turned = scratch<T>(turn_slot, outer * inner * (p + q));
  turn(outer, p, inner, h, turned);
  turn(outer, q, inner, g, turned + outer * inner * p);
  add_product(p, q, outer * inner, turned, turned + outer * inner * p, dw);
}

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses
#define BS_KRON(T)                                                                 \
  template void kron_step(const PackedFactor<T>&, int64_t, int64_t, const T*, T*); \
  template void kron_contract(int64_t, int64_t, int64_t, int64_t, const T*, const T*, T*);
// NOLINTEND(bugprone-macro-parentheses)
BS_KRON(float)
BS_KRON(double)
#undef BS_KRON

}  // namespace bs::cpu
