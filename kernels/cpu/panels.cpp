#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panel_vectors.h>
#include <bs/lib/check.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <new>

namespace bs::cpu {
namespace {

template <class T>
struct Chain {
  std::span<const PanelPair<T>> pairs;
  int64_t k, a_panel, a_lane, a_step, b_step;
  PanelSum<T> alpha;
};

/// sum + x * row in each lane.
template <class T, class Vec>
inline Vec multiply_add(T x, Vec row, Vec sum) {
  return sum + x * row;
}

#ifdef __AVX512F__
/// The second product first. In assembly, for -march need not have what multiplies_bfloat16x2()
/// asks the processor for.
template <class Vec>
inline Vec multiply_add(Bfloat16x2 x, Vec row, Vec sum) {
  const auto all = typename Simd<int32_t, sizeof(Vec)>::Aligned{} | std::bit_cast<int32_t>(x);
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(row), "v"(all));
  return sum;
}
#endif

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
/// are adjacent, so that one pointer reaches all of a panel. The first S of them are of one panel,
/// the others of the next.
template <class T, int Bytes, int V, int R, bool Unit, int S = R>
void tile(const Chain<T>& chain, int64_t a_at, int64_t b_at, PanelSum<T> beta, PanelSum<T>* c,
          int64_t ldc) {
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
        for (int v = 0; v < V; ++v) sum[i][v] = multiply_add(x, row[v], sum[i][v]);
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
      if (beta != 0) x += beta * *out;
      *out = x;
    }
  }
}

template <class T>
using TileFn = void (*)(const Chain<T>&, int64_t, int64_t, PanelSum<T>, PanelSum<T>*, int64_t);

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

/// Stores a row of sums as neighbours.
template <class T, class Out>
void store_row(int64_t n, const T* sum, T beta, Out* c) {
  if (beta == T(0)) return narrow(n, sum, c);
  constexpr int64_t span = 64;
  T row[span];
  for (int64_t i = 0; i < n; i += span) {
    const int64_t some = std::min(span, n - i);
    widen(some, c + i, row);
    for (int64_t j = 0; j < some; ++j) row[j] = sum[i + j] + beta * row[j];
    narrow(some, row, c + i);
  }
}

}  // namespace

bool multiplies_bfloat16x2() {
#ifdef __AVX512F__
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
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
    if (c_inner == 1 && s_inner == 1) {
      store_row(inner, s, beta, to_c);
      continue;
    }
    for (int64_t i = 0; i < inner; ++i) {
      Out& x = to_c[i * c_inner];
      const T one = s[i * s_inner];
      x = convert<Out>(beta == T(0) ? one : one + beta * convert<T>(x));
    }
  }
}

template <class T, class Out>
void multiply_panels(int64_t m, int64_t n, int64_t k, std::span<const PanelPair<T>> pairs,
                     PanelLayout a, PanelLayout b, PanelSum<T> alpha, PanelSum<T> beta, Out* c,
                     int64_t rsc, int64_t csc) {
  using Sum = PanelSum<T>;
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
      if constexpr (std::is_same_v<Sum, Out>) {
        if (csc == 1 && rows <= m - i && width <= n - j) {
          run(chain, a_at, b_at, beta, to_c, rsc);
          continue;
        }
      }
      alignas(64) Sum sum[most_rows<T> * NR];
      run(chain, a_at, b_at, Sum(0), sum, NR);
      if constexpr (std::is_same_v<Sum, Out>) {
        if (rsc == 1 && rows == MR && rows <= m - i && width <= n - j && width % MR == 0) {
          store_transposed(width, sum, NR, beta, to_c, csc);
          continue;
        }
      }
      store_sums(std::min(rows, m - i), std::min(width, n - j), sum, NR, beta, to_c, rsc, csc);
    }
  }
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
#define BS_PANELS(T, Out)                                                                          \
  template void multiply_panels(int64_t, int64_t, int64_t, std::span<const PanelPair<T>>,          \
                                PanelLayout, PanelLayout, PanelSum<T>, PanelSum<T>, Out*, int64_t, \
                                int64_t);
#define BS_SUMS(T, Out) \
  template void store_sums(int64_t, int64_t, const T*, int64_t, T, Out*, int64_t, int64_t);
// NOLINTEND(bugprone-macro-parentheses)

BS_PANELS(float, float)
BS_PANELS(float, half)
BS_PANELS(float, bfloat16)
BS_PANELS(double, double)
BS_PANELS(double, float)
#ifdef __AVX512F__
BS_PANELS(Bfloat16x2, float)
BS_PANELS(Bfloat16x2, bfloat16)
template Bfloat16x2* scratch(int, int64_t);
#endif
BS_SUMS(float, float)
BS_SUMS(float, half)
BS_SUMS(float, bfloat16)
BS_SUMS(double, double)
BS_SUMS(double, float)
template float* scratch(int, int64_t);
template double* scratch(int, int64_t);

}  // namespace bs::cpu
