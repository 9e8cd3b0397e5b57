#include <bs/kernels/max_pool2d.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/image/held_planes.cuh>
#include <bs/kernels/cuda/image/image_lanes.cuh>
#include <bs/kernels/cuda/image/max_pool2d.cuh>

#include <algorithm>
#include <limits>

namespace bs::cuda {

namespace {

using device::wide;

/// The windows of an axis that reach over a place, counted from the padding's begin.
struct WindowRange {
  int first, last;

  __device__ WindowRange(const Divisor& stride, int place, unsigned reach, int windows) {
    const int before = place - static_cast<int>(reach) + static_cast<int>(stride.number) - 1;
    first = before > 0 ? static_cast<int>(stride.divide(static_cast<unsigned>(before))) : 0;
    last = min(static_cast<int>(stride.divide(static_cast<unsigned>(place))), windows - 1);
  }
  __device__ int nearest(int window) const { return min(window, last); }
  /// Which element of a window the place is; -1 for none.
  __device__ int element(const Divisor& dilation, const Divisor& stride, int window,
                         int place) const {
    if (window > last) return -1;
    const auto inside = static_cast<unsigned>(place - window * static_cast<int>(stride.number));
    const auto number = dilation.divide(inside);
    return number * dilation.number == inside ? static_cast<int>(number) : -1;
  }
};

/// A thread a place of dx, which looks at the windows it lies in. Of channels in 16 bits it asks
/// for those of two lines and columns at once; what would lie behind the last is that one again,
/// and left out. Of f32 six blocks fit a multiprocessor, which gains more.
template <class T, int N, bool planes>
__global__ void __launch_bounds__(256, N == 4 ? 6 : 2)
    max_pool2d_backward_kernel(const T* dy, unsigned char* winners, T* dx,
                               const __grid_constant__ Pooling o,
                               const __grid_constant__ ImageWalk walk, unsigned count) {
  using W = wide<T>;
  constexpr int most = !planes && sizeof(T) == 2 ? 2 : 1;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const ImageWalk::Place at = walk.place(i);
  const auto pixels = static_cast<unsigned>(o.p * o.q);
  const auto from = walk.lanes<N, planes>(dy, pixels, at);
  const auto won = walk.bytes<N, planes>(winners, pixels, at);
  W sum[N] = {};
  const int below = static_cast<int>(at.line) + o.pad_h;
  const int right = static_cast<int>(at.column) + o.pad_w;
  const WindowRange rows(o.stride_h, below,
                         o.dilation_h.number * static_cast<unsigned>(o.kernel_h - 1), o.p);
  const WindowRange columns(o.stride_w, right,
                            o.dilation_w.number * static_cast<unsigned>(o.kernel_w - 1), o.q);
  for (int p0 = rows.first; p0 <= rows.last; p0 += most)
    for (int q0 = columns.first; q0 <= columns.last; q0 += most) {
      device::Raw<T, N> slopes[most][most];
      Bytes<N, !planes> winner[most][most];
#pragma unroll
      for (int p = 0; p < most; ++p)
#pragma unroll
        for (int q = 0; q < most; ++q) {
          const int window = rows.nearest(p0 + p) * o.q + columns.nearest(q0 + q);
          winner[p][q] = won.load(static_cast<unsigned>(window) * walk.packs.number);
          slopes[p][q] = from.raw(static_cast<unsigned>(window) * walk.packs.number);
        }
#pragma unroll
      for (int p = 0; p < most; ++p)
#pragma unroll
        for (int q = 0; q < most; ++q) {
          const int r = rows.element(o.dilation_h, o.stride_h, p0 + p, below);
          const int s = columns.element(o.dilation_w, o.stride_w, q0 + q, right);
          if (r < 0 || s < 0) continue;
          W slope[N];
          device::widen_pack<T, N>(slopes[p][q], slope);
          const auto number = static_cast<unsigned char>(r * o.kernel_w + s);
#pragma unroll
          for (int k = 0; k < N; ++k)
            if (winner[p][q].is(k, number)) sum[k] += slope[k];
        }
    }
  walk.own<N, planes>(dx, at).store(walk.own_place<planes>(at), sum);
}

/// Windows of which no two have an element in common: every `every`-th of an axis.
struct ApartWindows {
  unsigned every_line, every_column;
  Divisor columns, windows;  ///< of a plane, at a time
  Divisor kernel_columns;

  explicit ApartWindows(const Pooling& o)
      : every_line(every(o.dilation_h, o.kernel_h, o.stride_h)),
        every_column(every(o.dilation_w, o.kernel_w, o.stride_w)),
        columns(ceil_div(o.q, every_column)),
        windows(ceil_div(o.p, every_line) * columns.number),
        kernel_columns(o.kernel_w) {}

  __host__ __device__ unsigned turns() const { return every_line * every_column; }

 private:
  static unsigned every(const Divisor& dilation, int kernel, const Divisor& stride) {
    return dilation.number * static_cast<unsigned>(kernel - 1) / stride.number + 1;
  }
};

/// Planes that are held: a thread a window, which adds to the place that won it. Windows that share
/// places take turns.
template <class T>
__global__ void __launch_bounds__(HeldPlanes::threads)
    max_pool2d_backward_held_kernel(const T* dy, const unsigned char* winners, T* dx,
                                    const __grid_constant__ Pooling o,
                                    const __grid_constant__ HeldPlanes planes,
                                    const __grid_constant__ ApartWindows apart) {
  using W = wide<T>;
  constexpr int N = HeldPlanes::together;
  extern __shared__ uint4 memory[];
  const auto size = static_cast<uint32_t>(o.h * o.w), windows = planes.pixels.number;
  uint4* const held_dy = memory + planes.packs(size * sizeof(W));
  uint4* const held_winners = held_dy + planes.packs(windows * sizeof(T));
  planes.load(held_dy, dy, planes.packs(windows * sizeof(T)));
  planes.load(held_winners, winners, planes.packs(windows));
  for (uint4* zero = memory + threadIdx.x; zero < held_dy; zero += HeldPlanes::threads) *zero = {};
  planes.wait();
  auto* const sums = reinterpret_cast<W*>(memory);
  for (unsigned line = 0; line < apart.every_line; ++line)
    for (unsigned column = 0; column < apart.every_column; ++column) {
      for (uint32_t i = threadIdx.x; i < planes.count * apart.windows.number;
           i += HeldPlanes::threads) {
        const uint32_t plane = apart.windows.divide(i), window = i - plane * apart.windows.number;
        const uint32_t down = apart.columns.divide(window);
        const auto p = static_cast<int>(down * apart.every_line + line);
        const auto q =
            static_cast<int>((window - down * apart.columns.number) * apart.every_column + column);
        if (p >= o.p || q >= o.q) continue;
        const uint32_t at = plane * windows + static_cast<uint32_t>(p * o.q + q);
        const uint32_t number = reinterpret_cast<const unsigned char*>(held_winners)[at];
        const uint32_t r = apart.kernel_columns.divide(number);
        const uint32_t s = number - r * apart.kernel_columns.number;
        const int row = p * static_cast<int>(o.stride_h.number) - o.pad_h +
                        static_cast<int>(r * o.dilation_h.number);
        const int place = q * static_cast<int>(o.stride_w.number) - o.pad_w +
                          static_cast<int>(s * o.dilation_w.number);
        if (row < 0 || row >= o.h || place < 0 || place >= o.w) continue;  // all is padding
        sums[plane * size + static_cast<uint32_t>(row * o.w + place)] +=
            device::widen(reinterpret_cast<const T*>(held_dy)[at]);
      }
      __syncthreads();
    }
  const uint32_t packs = planes.count * size / N;
  T* const to = dx + uint64_t{blockIdx.x} * packs * N;
  for (uint32_t i = threadIdx.x; i < packs; i += HeldPlanes::threads) {
    const auto sum = reinterpret_cast<const device::Pack<W, N>*>(sums)[i];
    store_pack<N>(to, i, sum.at);
  }
}

/// Rectangles of dx of some channels, a block each: what their windows give is added up in shared
/// memory. A window that reaches over an edge is looked at by both sides.
struct PoolTiles {
  int height, width;                  ///< of a rectangle, at most
  Divisor across_pixels;              ///< the width
  Divisor packs;                      ///< of its channels
  Divisor of_channels, across, down;  ///< rectangles of an image
  Divisor windows, columns_of_turn;   ///< columns of its windows, at most; and in one turn
  int lines_of_windows, lines_of_turn;
  int pixel;  ///< sums from pixel to pixel
  unsigned all_packs;

  static constexpr unsigned threads = 128;

  PoolTiles(const Pooling& o, const ApartWindows& apart, const Tensor& dx, int N) {
    constexpr int most_packs = 8, most_width = 16, most_height = 8;
    const int64_t channels = dx.size(3);
    all_packs = static_cast<unsigned>(channels / N);
    packs = Divisor(std::min<int64_t>(all_packs, most_packs));
    height = std::min(o.h, most_height);
    width = std::min(o.w, most_width);
    across_pixels = Divisor(width);
    // Neighbouring packs of a pixel are side by side, and pixels begin in different banks.
    pixel = static_cast<int>(packs.number) * N + most_packs;
    const auto count = [](int size, const Divisor& dilation, int kernel, const Divisor& stride) {
      const int64_t reach = int64_t{dilation.number} * (kernel - 1);
      return static_cast<int>(ceil_div(size + reach, stride.number));
    };
    lines_of_windows = count(height, o.dilation_h, o.kernel_h, o.stride_h);
    const int columns = count(width, o.dilation_w, o.kernel_w, o.stride_w);
    windows = Divisor(columns);
    lines_of_turn = static_cast<int>(ceil_div(lines_of_windows, apart.every_line));
    columns_of_turn = Divisor(ceil_div(columns, apart.every_column));
    of_channels = Divisor(ceil_div(all_packs, packs.number));
    across = Divisor(ceil_div(o.w, width));
    down = Divisor(ceil_div(o.h, height));
  }
  int64_t count(int64_t images) const {
    return images * of_channels.number * across.number * down.number;
  }
  __host__ __device__ unsigned sums() const {
    return static_cast<unsigned>(round_up(height * width * pixel, 4));
  }
  __host__ __device__ unsigned window_packs() const {
    return static_cast<unsigned>(lines_of_windows) * windows.number * packs.number;
  }
  /// Of sums, slopes and winners.
  size_t bytes(int N) const {
    return sums() * sizeof(float) + window_packs() * (size_t{16} + static_cast<unsigned>(N));
  }
};

/// A block's rectangle, and the windows that reach over it: from `line` and `column` on.
struct PoolTile {
  int y, x, height, width;
  int line, last_line, column, last_column;
  unsigned first_pack, packs;
  int64_t image;

  __device__ PoolTile(const PoolTiles& t, const Pooling& o) {
    const uint32_t tile = t.of_channels.divide(blockIdx.x), row = t.across.divide(tile);
    const uint32_t at = t.down.divide(row);
    image = at;
    first_pack = (blockIdx.x - tile * t.of_channels.number) * t.packs.number;
    packs = min(t.packs.number, t.all_packs - first_pack);
    x = static_cast<int>(tile - row * t.across.number) * t.width;
    y = static_cast<int>(row - at * t.down.number) * t.height;
    width = min(t.width, o.w - x);
    height = min(t.height, o.h - y);
    const auto range = [](const Divisor& dilation, int kernel, const Divisor& stride, int from,
                          int size, int windows, int& first, int& last) {
      const unsigned reach = dilation.number * static_cast<unsigned>(kernel - 1);
      first = WindowRange(stride, from, reach, windows).first;
      last = WindowRange(stride, from + size - 1, reach, windows).last;
    };
    range(o.dilation_h, o.kernel_h, o.stride_h, y + o.pad_h, height, o.p, line, last_line);
    range(o.dilation_w, o.kernel_w, o.stride_w, x + o.pad_w, width, o.q, column, last_column);
  }
};

/// Channels-last: as the kernel of held planes does, a thread a window of N channels at a time.
template <class T, int N>
__global__ void __launch_bounds__(PoolTiles::threads)
    max_pool2d_backward_tile_kernel(const T* dy, const unsigned char* winners, T* dx,
                                    const __grid_constant__ Pooling o,
                                    const __grid_constant__ PoolTiles t,
                                    const __grid_constant__ ApartWindows apart) {
  using Raw = device::Raw<T, N>;
  extern __shared__ uint4 memory[];
  auto* const sums = reinterpret_cast<float*>(memory);
  auto* const slopes = reinterpret_cast<Raw*>(sums + t.sums());
  auto* const won = reinterpret_cast<Bytes<N, true>*>(slopes + t.window_packs());
  const PoolTile tile(t, o);
  // Calls f(number in shared memory, line, column, pack) for windows of the rectangle.
  const auto for_each = [&](unsigned count, const Divisor& columns, int every_line, int from_line,
                            int every_column, int from_column, auto&& f) {
    for (unsigned i = threadIdx.x; i < count; i += PoolTiles::threads) {
      const unsigned window = t.packs.divide(i), pack = i - window * t.packs.number;
      const unsigned down = columns.divide(window);
      const int p = static_cast<int>(down) * every_line + from_line;
      const int q = static_cast<int>(window - down * columns.number) * every_column + from_column;
      if (pack >= tile.packs || tile.line + p > tile.last_line ||
          tile.column + q > tile.last_column)
        continue;
      f((static_cast<unsigned>(p) * t.windows.number + static_cast<unsigned>(q)) * t.packs.number +
            pack,
        tile.line + p, tile.column + q, pack);
    }
  };
  for_each(t.window_packs(), t.windows, 1, 0, 1, 0, [&](unsigned at, int p, int q, unsigned pack) {
    const int64_t from = ((tile.image * o.p + p) * o.q + q) * t.all_packs + tile.first_pack + pack;
    device::copy_async_16(slopes + at, dy + from * N, true);
    device::copy_async<N>(won + at, winners + from * N, true);
  });
  for (unsigned i = threadIdx.x; i < t.sums() / 4; i += PoolTiles::threads) memory[i] = {};
  HeldPlanes::wait();
  for (unsigned turn = 0; turn < apart.turns(); ++turn) {
    const auto line = static_cast<int>(turn / apart.every_column);
    const auto column = static_cast<int>(turn % apart.every_column);
    for_each(static_cast<unsigned>(t.lines_of_turn) * t.columns_of_turn.number * t.packs.number,
             t.columns_of_turn, static_cast<int>(apart.every_line), line,
             static_cast<int>(apart.every_column), column,
             [&](unsigned at, int p, int q, unsigned pack) {
               float slope[N], sum[N];
               device::widen_pack<T, N>(slopes[at], slope);
               const Bytes<N, true> winner = won[at];
               const int row = p * static_cast<int>(o.stride_h.number) - o.pad_h - tile.y;
               const int place = q * static_cast<int>(o.stride_w.number) - o.pad_w - tile.x;
               int to[N];
#pragma unroll
               for (int k = 0; k < N; ++k) {
                 const uint32_t r = apart.kernel_columns.divide(winner.of.at[k]);
                 const uint32_t s = winner.of.at[k] - r * apart.kernel_columns.number;
                 const int y = row + static_cast<int>(r * o.dilation_h.number);
                 const int x = place + static_cast<int>(s * o.dilation_w.number);
                 const bool inside =
                     static_cast<unsigned>(y) < static_cast<unsigned>(tile.height) &&
                     static_cast<unsigned>(x) < static_cast<unsigned>(tile.width);
                 to[k] = inside ? (y * t.width + x) * t.pixel +
                                      k * static_cast<int>(t.packs.number) + static_cast<int>(pack)
                                : -1;
                 sum[k] = inside ? sums[to[k]] : 0;
               }
#pragma unroll
               for (int k = 0; k < N; ++k)
                 if (to[k] >= 0) sums[to[k]] = sum[k] + slope[k];
             });
    __syncthreads();
  }
  const unsigned pixels = static_cast<unsigned>(tile.height * t.width);
  for (unsigned i = threadIdx.x; i < pixels * t.packs.number; i += PoolTiles::threads) {
    const unsigned pixel = t.packs.divide(i), pack = i - pixel * t.packs.number;
    const auto y = static_cast<int>(t.across_pixels.divide(pixel));
    const int x = static_cast<int>(pixel) - y * t.width;
    if (pack >= tile.packs || x >= tile.width) continue;
    float v[N];
#pragma unroll
    for (int k = 0; k < N; ++k)
      v[k] = sums[pixel * static_cast<unsigned>(t.pixel) +
                  static_cast<unsigned>(k) * t.packs.number + pack];
    const int64_t to =
        ((tile.image * o.h + tile.y + y) * o.w + tile.x + x) * t.all_packs + tile.first_pack + pack;
    store_pack<N>(dx + to * N, v);
  }
}

/// Whether channels-last dx was made so.
template <class T, int N>
bool backward_by_tiles(const Pooling& o, const ApartWindows& apart, const Tensor& dy,
                       const Tensor& winner, const Tensor& dx, Stream stream) {
  using D = device_type<T>;
  if constexpr (sizeof(wide<D>) != 4 || N == 1) {
    return false;
  } else {
    constexpr size_t most_bytes = 48 << 10;
    const PoolTiles tiles(o, apart, dx, N);
    const int64_t count = tiles.count(dx.size(0));
    if (tiles.bytes(N) > most_bytes || count > std::numeric_limits<int32_t>::max()) return false;
    max_pool2d_backward_tile_kernel<D, N>
        <<<static_cast<unsigned>(count), PoolTiles::threads, tiles.bytes(N), native(stream)>>>(
            pointer<T>(dy), winner.data<uint8_t>(), pointer<T>(dx), o, tiles, apart);
    return true;
  }
}

}  // namespace

void max_pool2d_backward(const PoolWindows& o, const Tensor& dy, const Tensor& winner,
                         const Tensor& dx, Stream stream) {
  const Pooling plan(o, dx, dy);
  const ApartWindows apart(plan);
  const bool aligned = aligned16(dy, dx, winner);
  visit_floating("max_pool2d_backward", dx.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const size_t bytes[] = {static_cast<size_t>(of_image(dx)) * sizeof(wide<D>), image_bytes(dy),
                            image_bytes(winner)};
    constexpr unsigned few_turns = 4;
    if (const HeldPlanes planes = held_planes(dy, {bytes[0], bytes[1], bytes[2]});
        planes.count > 0 && aligned && apart.turns() <= few_turns) {
      max_pool2d_backward_held_kernel<D>
          <<<grid_of("max_pool2d_backward", dx.size(0) / planes.count), HeldPlanes::threads,
             planes.count*(bytes[0] + bytes[1] + bytes[2]), native(stream)>>>(
              pointer<T>(dy), winner.data<uint8_t>(), pointer<T>(dx), plan, planes, apart);
      return BS_CUDA_CHECK_LAUNCH("max_pool2d_backward");
    }
    visit_image_lanes<T>(
        aligned, dx, dy,
        [&]<int N, bool planes>(std::integral_constant<int, N>, std::bool_constant<planes>) {
          if constexpr (!planes)
            if (apart.turns() <= few_turns &&
                backward_by_tiles<T, N>(plan, apart, dy, winner, dx, stream))
              return BS_CUDA_CHECK_LAUNCH("max_pool2d_backward");
          walk_images<N, planes>(
              "max_pool2d_backward", dx, [&](int64_t image, const ImageWalk& walk, unsigned count) {
                max_pool2d_backward_kernel<D, N, planes>
                    <<<grid_of("max_pool2d", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                        pointer<T>(dy) + image * of_image(dy),
                        winner.data<uint8_t>() + image * of_image(dy),
                        pointer<T>(dx) + image * of_image(dx), plan, walk, count);
                BS_CUDA_CHECK_LAUNCH("max_pool2d_backward");
              });
        });
  });
}

}  // namespace bs::cuda
