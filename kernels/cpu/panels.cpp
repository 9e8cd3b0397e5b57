#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/lib/check.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace bs::cpu {
namespace {

/// Vectors of GCC: `Aligned` lives in registers, `Loose` may alias and lie anywhere.
template <class T, int Bytes>
struct Simd {
  typedef T Aligned __attribute__((vector_size(Bytes)));
  typedef T Loose __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};

// ------------------------------------------------------------------------------------- packing

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

/// Packs N lanes whose depth is contiguous, N elements at a time, through registers.
template <class T, int N, class In>
void pack_transposed(int64_t depth, const In* src, int64_t lane, int64_t width, T* dst) {
  using S = Simd<T, N* static_cast<int>(sizeof(T))>;
  int64_t l = 0;
  for (; l + N <= depth; l += N) {
    typename S::Aligned rows[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      if constexpr (std::is_same_v<T, In>) {
        rows[i] = *reinterpret_cast<const typename S::Loose*>(src + i * lane + l);
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
  for (; l < depth; ++l) {
    for (int i = 0; i < N; ++i) dst[l * width + i] = convert<T>(src[i * lane + l]);
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
  for (int64_t l = 0; l < depth; ++l) {
    T* row = dst + l * W;
    for (int64_t j = i; j < lanes; ++j) row[j] = convert<T>(src[j * lane + l * step]);
    for (int64_t j = lanes; j < W; ++j) row[j] = T(0);
  }
}

// --------------------------------------------------------------------------------- register tile

template <class T>
struct Chain {
  std::span<const PanelPair<T>> pairs;
  int64_t k, a_panel, a_lane, a_step, b_step;
  T alpha;
};

/// Asks for R rows of a coming left operand: blocks lie scattered, and the hardware foresees only
/// what follows a line. `Unit` as below.
template <class T, int R, bool Unit>
inline void prefetch(const T* a, int64_t k, int64_t lane, int64_t step) {
  constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(T));
  if constexpr (Unit) {
    for (int64_t l = 0; l < k; ++l) __builtin_prefetch(a + l * step);
  } else {
    for (int64_t i = 0; i < R; ++i)
      for (int64_t l = 0; l < k; l += line) __builtin_prefetch(a + i * lane + l);
  }
}

/// R rows times V vectors of C, summed over the whole chain in registers. `Unit`: the rows of A
/// are adjacent, so that one pointer reaches all of a panel, the first S of them of one panel and
/// the others of the next.
template <class T, int Bytes, int V, int R, bool Unit, int S = R>
void tile(const Chain<T>& chain, int64_t a_at, int64_t b_at, T beta, T* c, int64_t ldc) {
  using Vec = typename Simd<T, Bytes>::Aligned;
  using Loose = typename Simd<T, Bytes>::Loose;
  constexpr int64_t L = Bytes / static_cast<int64_t>(sizeof(T));
  const int64_t lane = Unit ? 1 : chain.a_lane;
  const int64_t a_step = chain.a_step, b_step = chain.b_step, k = chain.k;
  constexpr int64_t answer = 64;  // steps of the depth in which memory answers
  const auto ahead = static_cast<std::size_t>(ceil_div(answer, std::max<int64_t>(k, 1)));
  Vec sum[R][V] = {};
  for (std::size_t p = 0; p < chain.pairs.size(); ++p) {
    const T* a = chain.pairs[p].a + a_at;
    const T* b = chain.pairs[p].b + b_at;
    const T* rest = a + (Unit && S < R ? chain.a_panel - Tile<T>::rows + S : 0);
    if (p + ahead < chain.pairs.size())
      prefetch<T, R, Unit>(chain.pairs[p + ahead].a + a_at, k, lane, a_step);
    for (int64_t l = 0; l < k; ++l) {
      Vec row[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) row[v] = *reinterpret_cast<const Loose*>(b + v * L);
#pragma GCC unroll 8
      for (int i = 0; i < R; ++i) {
        const T x = Unit && i >= S ? rest[i - S] : a[i * lane];
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sum[i][v] += x * row[v];
      }
      a += a_step;
      rest += a_step;
      b += b_step;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      auto* out = reinterpret_cast<Loose*>(c + i * ldc + v * L);
      Vec x = chain.alpha * sum[i][v];
      if (beta != T(0)) x += beta * *out;
      *out = x;
    }
  }
}

template <class T>
using TileFn = void (*)(const Chain<T>&, int64_t, int64_t, T, T*, int64_t);

/// Where registers are few, panels of four rows leave the latency of the multiply-adds barely
/// hidden. Three such panels are two tiles of six rows, which need fewer loads a multiply-add, too.
template <class T>
constexpr bool has_sixes = Tile<T>::rows == 4;
template <class T>
constexpr int most_rows = has_sixes<T> ? 6 : static_cast<int>(Tile<T>::rows);

/// [unit][first or second of a pair]
template <class T>
constexpr std::array<std::array<TileFn<T>, 2>, 2> sixes = {
    {{tile<T, vector_bytes, 2, 6, false>, tile<T, vector_bytes, 2, 6, false>},
     {tile<T, vector_bytes, 2, 6, true, 4>, tile<T, vector_bytes, 2, 6, true, 2>}}};

template <class T, int Bytes, int V, bool Unit>
constexpr std::array<TileFn<T>, 4> tiles_by_rows() {
  return {tile<T, Bytes, V, 1, Unit>, tile<T, Bytes, V, 2, Unit>, tile<T, Bytes, V, 4, Unit>,
          tile<T, Bytes, V, static_cast<int>(Tile<T>::rows), Unit>};
}

/// [unit][half a vector, one, two][log2 of the rows]
template <class T>
constexpr std::array<std::array<std::array<TileFn<T>, 4>, 3>, 2> tile_table = {
    {{tiles_by_rows<T, std::max(16, vector_bytes / 2), 1, false>(),
      tiles_by_rows<T, vector_bytes, 1, false>(), tiles_by_rows<T, vector_bytes, 2, false>()},
     {tiles_by_rows<T, std::max(16, vector_bytes / 2), 1, true>(),
      tiles_by_rows<T, vector_bytes, 1, true>(), tiles_by_rows<T, vector_bytes, 2, true>()}}};

/// Stores rows rows of sums as the contiguous direction of a transposed C, through registers.
template <class T>
void store_transposed(int64_t cols, const T* sum, int64_t width, T beta, T* c, int64_t csc) {
  constexpr int N = static_cast<int>(Tile<T>::rows);
  using S = Simd<T, N* static_cast<int>(sizeof(T))>;
  for (int64_t j = 0; j < cols; j += N) {
    typename S::Aligned rows[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      rows[i] = *reinterpret_cast<const typename S::Loose*>(sum + i * width + j);
    }
    transpose<1, N>(rows);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      auto* out = reinterpret_cast<typename S::Loose*>(c + (j + i) * csc);
      if (beta != T(0)) rows[i] += beta * *out;
      *out = rows[i];
    }
  }
}

/// The widest shape of tile for `left` columns: [0] half a vector, [1] one, [2] two. A padded panel
/// is rounded up, one read where it lies is rounded down.
template <class T>
int tile_shape(int64_t left, bool padded, int64_t& width) {
  constexpr int64_t L = Tile<T>::lanes;
  constexpr int64_t H = std::max(16, vector_bytes / 2) / static_cast<int64_t>(sizeof(T));
  const int shape = padded ? (left > L ? 2 : left > H ? 1 : 0) : (left >= 2 * L ? 2 : left >= L);
  width = shape == 2 ? 2 * L : shape == 1 ? L : H;
  return shape;
}

template <class T>
int tile_rows(int64_t left, bool padded, int64_t& rows) {
  int log = 0;
  while ((2 << log) <= std::min(left, Tile<T>::rows)) ++log;
  if (padded && (1 << log) < std::min(left, Tile<T>::rows)) ++log;
  rows = int64_t{1} << log;
  return log;
}

}  // namespace

template <Side side, class T, class In>
void pack_panels(int64_t first, int64_t last, int64_t lanes, int64_t depth, const In* src,
                 int64_t lane, int64_t step, T* dst) {
  constexpr int W = static_cast<int>(side == Side::left ? Tile<T>::rows : Tile<T>::cols);
  // Where lanes are contiguous a few panels go together: a visit to a row uses whole cache lines.
  constexpr int64_t group = 8;
  int64_t p = first;
  if (lane == 1) {
    const int64_t whole = std::min(last, lanes / W);
    for (int64_t next = p; p < whole; p = next) {
      next = std::min(whole, p + group);
      for (int64_t l = 0; l < depth; ++l) {
        const In* row = src + l * step;
        for (int64_t q = p; q < next; ++q) widen(W, row + q * W, dst + q * W * depth + l * W);
      }
    }
  }
  for (; p < last; ++p) {
    const int64_t i = p * W;
    pack_panel<T, W>(std::min<int64_t>(W, lanes - i), depth, src + i * lane, lane, step,
                     dst + i * depth);
  }
}

template <class T, class Out>
void store_sums(int64_t rows, int64_t cols, const T* sum, int64_t width, T beta, Out* c,
                int64_t rsc, int64_t csc) {
  const bool across = csc != 1;  // write along the contiguous direction of C
  const int64_t outer = across ? cols : rows, inner = across ? rows : cols;
  const int64_t c_outer = across ? csc : rsc, c_inner = across ? rsc : csc;
  const int64_t s_outer = across ? 1 : width, s_inner = across ? width : 1;
  for (int64_t o = 0; o < outer; ++o) {
    Out* to_c = c + o * c_outer;
    const T* s = sum + o * s_outer;
    if (beta == T(0)) {
      if (c_inner == 1 && s_inner == 1) {
        for (int64_t i = 0; i < inner; ++i) to_c[i] = convert<Out>(s[i]);
      } else {
        for (int64_t i = 0; i < inner; ++i) to_c[i * c_inner] = convert<Out>(s[i * s_inner]);
      }
    } else {
      for (int64_t i = 0; i < inner; ++i) {
        Out& x = to_c[i * c_inner];
        x = convert<Out>(s[i * s_inner] + beta * convert<T>(x));
      }
    }
  }
}

template <class T, class Out>
void multiply_panels(int64_t m, int64_t n, int64_t k, std::span<const PanelPair<T>> pairs,
                     PanelLayout a, PanelLayout b, T alpha, T beta, Out* c, int64_t rsc,
                     int64_t csc) {
  constexpr int64_t MR = Tile<T>::rows, NR = Tile<T>::cols;
  const Chain<T> chain{pairs, k, a.panel, a.lane, a.step, b.step, alpha};
  int64_t rows = 0, width = 0;
  for (int64_t j = 0; j < n; j += width) {
    const int shape = tile_shape<T>(n - j, b.padded, width);
    const auto& tiles = tile_table<T>[a.lane == 1][static_cast<std::size_t>(shape)];
    const int64_t b_at = j / NR * b.panel + j % NR;
    // Rows that go in pairs of sixes.
    const int64_t paired = has_sixes<T> && csc == 1 && shape == 2 ? m / 12 * 12 : 0;
    for (int64_t i = 0; i < m; i += rows) {
      const bool six = i < paired;
      const int log = six ? 0 : tile_rows<T>(m - i, a.padded, rows);
      if (six) rows = 6;
      if (csc == 1 && i + 2 * rows <= m) {  // the next tile of C, which lies far from this one
        for (int64_t r = rows; r < 2 * rows; ++r) {
          __builtin_prefetch(c + (i + r) * rsc + j, 1);
          __builtin_prefetch(c + (i + r) * rsc + std::min(j + width, n) - 1, 1);
        }
      }
      const TileFn<T> run = six ? sixes<T>[a.lane == 1][static_cast<std::size_t>(i % 12 / 6)]
                                : tiles[static_cast<std::size_t>(log)];
      const int64_t a_at = i / MR * a.panel + i % MR * a.lane;
      Out* to_c = c + i * rsc + j * csc;
      if constexpr (std::is_same_v<T, Out>) {
        if (csc == 1 && rows <= m - i && width <= n - j) {
          run(chain, a_at, b_at, beta, to_c, rsc);
          continue;
        }
      }
      alignas(64) T sum[most_rows<T> * NR];
      run(chain, a_at, b_at, T(0), sum, NR);
      if constexpr (std::is_same_v<T, Out>) {
        if (rsc == 1 && rows == MR && rows <= m - i && width <= n - j && width % MR == 0) {
          store_transposed(width, sum, NR, beta, to_c, csc);
          continue;
        }
      }
      store_sums(std::min(rows, m - i), std::min(width, n - j), sum, NR, beta, to_c, rsc, csc);
    }
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

template <class T>
T* scratch(int slot, int64_t count) {
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  struct Buffer {
    std::unique_ptr<std::byte[], Free> data;
    std::size_t size = 0;
  };
  thread_local std::array<Buffer, 8> buffers;
  Buffer& buffer = buffers[static_cast<std::size_t>(slot)];
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (buffer.size < bytes) {
    buffer.data.reset();
    buffer.size = 0;
    void* const memory = ::operator new[](bytes, std::align_val_t{64}, std::nothrow);
    if (!memory) BS_THROW(OutOfMemory, "memory: the host cannot give {} bytes", bytes);
    buffer.data.reset(static_cast<std::byte*>(memory));
    buffer.size = bytes;
  }
  return reinterpret_cast<T*>(buffer.data.get());
}

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses
#define BS_PACK(T, In)                                                                           \
  template void pack_a(int64_t, int64_t, const In*, int64_t, int64_t, T*);                       \
  template void pack_b(int64_t, int64_t, const In*, int64_t, int64_t, T*);                       \
  template void pack_panels<Side::left>(int64_t, int64_t, int64_t, int64_t, const In*, int64_t,  \
                                        int64_t, T*);                                            \
  template void pack_panels<Side::right>(int64_t, int64_t, int64_t, int64_t, const In*, int64_t, \
                                         int64_t, T*);
#define BS_PANELS(T, Out)                                                                 \
  template void multiply_panels(int64_t, int64_t, int64_t, std::span<const PanelPair<T>>, \
                                PanelLayout, PanelLayout, T, T, Out*, int64_t, int64_t);  \
  template void store_sums(int64_t, int64_t, const T*, int64_t, T, Out*, int64_t, int64_t);
// NOLINTEND(bugprone-macro-parentheses)

BS_PACK(float, float)
BS_PACK(float, half)
BS_PACK(float, bfloat16)
BS_PACK(double, double)
BS_PACK(double, float)
BS_PANELS(float, float)
BS_PANELS(float, half)
BS_PANELS(float, bfloat16)
BS_PANELS(double, double)
BS_PANELS(double, float)
template float* scratch(int, int64_t);
template double* scratch(int, int64_t);

}  // namespace bs::cpu
