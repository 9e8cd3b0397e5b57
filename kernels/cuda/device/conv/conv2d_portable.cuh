#pragma once
// How convolutions fill the stages of a product on sm_80 and later: each thread gathers pieces of
// pixels, of as many bytes as channels are aligned to. What lies outside of an image is zero.
#include <bs/kernels/cuda/device/conv/conv2d_pixel.cuh>
#include <bs/kernels/cuda/device/gemm/gemm_portable.cuh>

namespace bs::cuda::device {

template <bool first, class X, class Y>
struct Choose {
  using type = X;
};
template <class X, class Y>
struct Choose<false, X, Y> {
  using type = Y;
};

/// Copies `Align` bytes to shared memory, or writes zeros.
template <int Align, class T>
__device__ inline void gather_unit(T* to, const T* from, bool valid) {
  if constexpr (Align >= 4) {
    copy_async<Align>(to, from, valid);
  } else {
    *to = valid ? *from : T{};
  }
}

/// Rows are pixels, the depth is channels, tap by tap.
template <class C, class T, class Tile, int Threads>
struct PixelRows {
  static constexpr int chunk = Tile::chunk, chunks = C::depth / chunk;
  static constexpr int pass = Threads / chunks, lines = (C::rows + pass - 1) / pass;
  static constexpr int unit = C::align_a / static_cast<int>(sizeof(T)), units = chunk / unit;
  static_assert(pass * chunks == Threads && units * unit == chunk);
  const Conv2dGrid& g;
  const T* image;
  int first_tap, taps, line, at;
  int h[lines], w[lines], n[lines];  // of the pixels' first inputs

  __device__ PixelRows(const Conv2dGrid& grid, const void* data, int row0, int phase)
      : g(grid),
        image(static_cast<const T*>(data)),
        first_tap(grid.first_tap[phase]),
        taps(grid.first_tap[phase + 1] - first_tap),
        line(static_cast<int>(threadIdx.x) / chunks),
        at(static_cast<int>(threadIdx.x) % chunks * chunk) {
#pragma unroll
    for (int i = 0; i < lines; ++i) {
      const Conv2dPixel pixel(g, row0 + line + i * pass);
      h[i] = pixel.image < g.images ? pixel.h : -(1 << 20);  // which no tap reaches
      w[i] = pixel.w;
      n[i] = pixel.image;
    }
  }
  __device__ void fetch(T* tile, int k0) const {
#pragma unroll
    for (int u = 0; u < units; ++u) {
      const int k = k0 + at + u * unit, tap = k / g.channels, c = k - tap * g.channels;
      const bool known = tap < taps;
      const Conv2dTap t = g.taps[known ? first_tap + tap : 0];
#pragma unroll
      for (int i = 0; i < lines; ++i) {
        if (C::rows % pass != 0 && line + i * pass >= C::rows) continue;
        const int y = h[i] + t.h, x = w[i] + t.w;
        const bool valid = known && static_cast<unsigned>(y) < static_cast<unsigned>(g.height_in) &&
                           static_cast<unsigned>(x) < static_cast<unsigned>(g.width_in);
        const long long pixel = (static_cast<long long>(n[i]) * g.height_in + y) * g.width_in + x;
        gather_unit<C::align_a>(tile + (line + i * pass) * Tile::ld + at + u * unit,
                                valid ? image + pixel * g.channels + c : image, valid);
      }
    }
  }
};

/// Columns are channels, tap by tap, the depth is pixels.
template <class C, class T, class Tile, int Threads>
struct PixelColumns {
  static constexpr int chunk = Tile::chunk, chunks = C::columns / chunk;
  static constexpr int pass = Threads / chunks, lines = (C::depth + pass - 1) / pass;
  static constexpr int unit = C::align_b / static_cast<int>(sizeof(T)), units = chunk / unit;
  static_assert(pass * chunks == Threads && units * unit == chunk);
  const Conv2dGrid& g;
  const T* image;
  int line, at;
  int channel[units], h[units], w[units];  // of the columns

  __device__ PixelColumns(const Conv2dGrid& grid, const void* data, int column0)
      : g(grid),
        image(static_cast<const T*>(data)),
        line(static_cast<int>(threadIdx.x) / chunks),
        at(static_cast<int>(threadIdx.x) % chunks * chunk) {
#pragma unroll
    for (int u = 0; u < units; ++u) {
      const int column = column0 + at + u * unit, tap = column / g.channels;
      const bool known = tap < g.first_tap[1];
      const Conv2dTap t = g.taps[known ? tap : 0];
      channel[u] = column - tap * g.channels;
      h[u] = known ? t.h : -(1 << 20);
      w[u] = t.w;
    }
  }
  __device__ void fetch(T* tile, int k0) const {
#pragma unroll
    for (int i = 0; i < lines; ++i) {
      if (C::depth % pass != 0 && line + i * pass >= C::depth) continue;
      const Conv2dPixel pixel(g, k0 + line + i * pass);
#pragma unroll
      for (int u = 0; u < units; ++u) {
        const int y = pixel.h + h[u], x = pixel.w + w[u];
        const bool valid = pixel.image < g.images &&
                           static_cast<unsigned>(y) < static_cast<unsigned>(g.height_in) &&
                           static_cast<unsigned>(x) < static_cast<unsigned>(g.width_in);
        const long long input =
            (static_cast<long long>(pixel.image) * g.height_in + y) * g.width_in + x;
        gather_unit<C::align_b>(tile + (line + i * pass) * Tile::ld + at + u * unit,
                                valid ? image + input * g.channels + channel[u] : image, valid);
      }
    }
  }
};

/// Filters [channel][tap][column], whose channels and taps are the depth.
template <class C, class T, class Tile, int Threads>
struct FilterLines {
  const Conv2dGrid& g;
  const GemmMatrix& filters;  // ld: of a channel
  int first_tap, taps, column0, columns;

  __device__ FilterLines(const Conv2dGrid& grid, const GemmMatrix& matrix, int column, int end,
                         int phase)
      : g(grid),
        filters(matrix),
        first_tap(grid.first_tap[phase]),
        taps(grid.first_tap[phase + 1] - first_tap),
        column0(column),
        columns(end) {}
  __device__ void fetch(T* tile, int k0) const {
    constexpr int chunks = C::columns / Tile::chunk;
#pragma unroll 1
    for (int index = static_cast<int>(threadIdx.x); index < C::depth * chunks; index += Threads) {
      const int line = index / chunks, at = index % chunks * Tile::chunk;
      const int tap = (k0 + line) / g.channels, channel = k0 + line - tap * g.channels;
      const bool known = tap < taps;
      const T* from = static_cast<const T*>(filters.data) + channel * filters.ld +
                      static_cast<long long>(g.taps[known ? first_tap + tap : 0].number) * columns +
                      column0 + at;
      const int left = known ? columns - column0 - at : 0;
      Tile::copy_chunk(tile + line * Tile::ld + at, from,
                       left < 0             ? 0
                       : left < Tile::chunk ? left
                                            : Tile::chunk);
    }
  }
};

/// The result of a convolution (k contiguous in both operands), the gradient of its input (in a
/// alone) and that of its filters (in none). C is PortableGemm's.
template <class C>
struct Conv2dPortableLoader {
  using Params = Conv2dPortableParams;
  using A = typename C::ElementA;
  using B = typename C::ElementB;
  static constexpr int threads = PortableLoader<C>::threads;
  using TileA = typename PortableLoader<C>::TileA;
  using TileB = typename PortableLoader<C>::TileB;
  static constexpr bool of_filters = !C::a_k_contiguous,
                        of_input = !of_filters && !C::b_k_contiguous;
  static constexpr bool own_steps = C::split == GemmSplit::none && !of_filters;
  template <bool first, class X, class Y>
  using Either = typename Choose<first, X, Y>::type;
  using WalkA = Either<of_filters, TileWalk<TileA, A, false>, PixelRows<C, A, TileA, threads>>;
  using WalkB =
      Either<of_filters, PixelColumns<C, B, TileB, threads>,
             Either<of_input, FilterLines<C, B, TileB, threads>, TileWalk<TileB, B, false>>>;
  WalkA a;
  WalkB b;

  __device__ static WalkA make_a(const Params& p, const GemmProblem& q, const GemmWork& work) {
    if constexpr (of_filters) {
      return {q.a, 0, work.m * C::rows, q.m, work.k_begin * C::depth, q.k};
    } else {
      return {p.grid, q.a.data, work.m * C::rows, work.problem};
    }
  }
  __device__ static WalkB make_b(const Params& p, const GemmProblem& q, const GemmWork& work) {
    if constexpr (of_filters) {
      return {p.grid, q.b.data, work.n * C::columns};
    } else if constexpr (of_input) {
      return {p.grid, q.b, work.n * C::columns, q.n, work.problem};
    } else {
      return {q.b, 0, work.n * C::columns, q.n, work.k_begin * C::depth, q.k};
    }
  }
  __device__ Conv2dPortableLoader(const Params& p, const GemmProblem& q, const GemmWork& work, int)
      : a(make_a(p, q, work)), b(make_b(p, q, work)) {}

  /// A phase without taps has one step, of zeros.
  __device__ static int steps(const Params& p, const GemmWork& work) {
    const int taps = p.grid.first_tap[work.problem + 1] - p.grid.first_tap[work.problem];
    return taps == 0 ? 1 : (taps * p.grid.channels + C::depth - 1) / C::depth;
  }
  __device__ static Conv2dPlaces places(const Params& p) { return {p.grid}; }
  __device__ void fetch(char* to, int step) {
    fetch(a, reinterpret_cast<A*>(to), step * C::depth);
    fetch(b, reinterpret_cast<B*>(to + TileA::bytes), step * C::depth);
  }

 private:
  template <class Tile, class T, bool plain>
  __device__ static void fetch(TileWalk<Tile, T, plain>& walk, T* to, int k0) {
    walk.fetch(reinterpret_cast<char*>(to), k0, false);
  }
  template <class Walk, class T>
  __device__ static void fetch(const Walk& walk, T* to, int k0) {
    walk.fetch(to, k0);
  }
};

}  // namespace bs::cuda::device
