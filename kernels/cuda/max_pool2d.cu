#include <bs/kernels/max_pool2d.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/held_planes.cuh>
#include <bs/kernels/cuda/image_lanes.cuh>

#include <limits>

namespace bs::cuda {

namespace {

using device::wide;

/// Windows over images of h x w pixels, which have p x q of them.
struct Pooling {
  int h, w, p, q;
  int kernel_h, kernel_w, pad_h, pad_w;
  Divisor dilation_h, dilation_w, stride_h, stride_w;

  Pooling(const PoolWindows& o, const Tensor& x, const Tensor& y)
      : h(static_cast<int>(x.size(1))),
        w(static_cast<int>(x.size(2))),
        p(static_cast<int>(y.size(1))),
        q(static_cast<int>(y.size(2))),
        kernel_h(static_cast<int>(o.kernel.h)),
        kernel_w(static_cast<int>(o.kernel.w)),
        pad_h(static_cast<int>(o.padding.h)),
        pad_w(static_cast<int>(o.padding.w)),
        dilation_h(o.dilation.h),
        dilation_w(o.dilation.w),
        stride_h(o.stride.h),
        stride_w(o.stride.w) {}
};

/// The elements of a window that lie in an axis: numbers from `first` to before `last`.
struct WindowSpan {
  int first, last;

  __device__ WindowSpan(const Divisor& dilation, int begin, int kernel, int extent) {
    first = begin < 0 ? static_cast<int>(dilation.divide(dilation.number - 1 - begin)) : 0;
    last =
        begin < extent ? min(static_cast<int>(dilation.divide(extent - 1 - begin)) + 1, kernel) : 0;
  }
  __device__ bool any() const { return first < last; }
  __device__ int nearest(int number) const { return min(number, last - 1); }
};

/// Whether two elements are compared by one instruction.
template <class T, int N>
inline constexpr bool in_pairs = sizeof(T) == 2 && N % 2 == 0;

/// The greatest of N windows' elements so far, and their numbers: the first of those alike, the
/// last NaN.
template <class T, int N, bool pairs = in_pairs<T, N>>
struct Greatest {
  using W = wide<T>;
  W best[N];
  unsigned char number[N];

  __device__ Greatest(bool any, int first) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      best[k] = any ? -std::numeric_limits<W>::infinity() : W(0);
      number[k] = static_cast<unsigned char>(first);
    }
  }
  __device__ void take(const device::Raw<T, N>& raw, int n) {
    W v[N];
    device::widen_pack<T, N>(raw, v);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool wins = v[k] > best[k] || v[k] != v[k];
      best[k] = wins ? v[k] : best[k];
      number[k] = wins ? static_cast<unsigned char>(n) : number[k];
    }
  }
  __device__ void values(W (&to)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = best[k];
  }
  template <bool as_words>
  __device__ Bytes<N, as_words> numbers() const {
    Bytes<N, as_words> bytes;
#pragma unroll
    for (int k = 0; k < N; ++k) bytes.of.at[k] = number[k];
    return bytes;
  }
};

/// The same of 16-bit elements, whose numbers lie in the halves of words as they do.
template <class T, int N>
struct Greatest<T, N, true> {
  using Pair = decltype(device::narrow_pair(0.F, 0.F, T{}));
  unsigned best[N / 2], number[N / 2];

  static __device__ unsigned twice(int n) { return static_cast<unsigned>(n) * 0x10001U; }
  __device__ Greatest(bool any, int first) {
    const Pair lowest = device::narrow_pair(-INFINITY, -INFINITY, T{});
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      best[k] = any ? reinterpret_cast<const unsigned&>(lowest) : 0;
      number[k] = twice(first);
    }
  }
  __device__ void take(const device::Raw<T, N>& raw, int n) {
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      const unsigned word = reinterpret_cast<const device::Pack<unsigned, N / 2>&>(raw).at[k];
      const auto &v = reinterpret_cast<const Pair&>(word),
                 &greatest = reinterpret_cast<const Pair&>(best[k]);
      const unsigned wins = __hgt2_mask(v, greatest) | __hneu2_mask(v, v);
      best[k] = (word & wins) | (best[k] & ~wins);
      number[k] = (twice(n) & wins) | (number[k] & ~wins);
    }
  }
  __device__ void values(float (&to)[N]) const {
    device::widen_pack<T, N>(reinterpret_cast<const device::Raw<T, N>&>(best), to);
  }
  template <bool as_words>
  __device__ Bytes<N, as_words> numbers() const {
    Bytes<N, as_words> bytes;
#pragma unroll
    for (int k = 0; k < N; ++k)
      bytes.of.at[k] = static_cast<unsigned char>(number[k / 2] >> k % 2 * 16);
    return bytes;
  }
};

/// The greatest elements of the window at a line and column of y. `rows` x `columns` of them are
/// asked for at once, which are whole rows of it where `rows` is more than 1. What would lie behind
/// the last row or column is that one again, which changes nothing.
template <class T, int N, bool planes, int rows, int columns>
__device__ Greatest<T, N> greatest_of(const ImageLanes<const T, N, planes>& from, const Pooling& o,
                                      uint32_t packs, uint32_t line, uint32_t column) {
  const int row0 = static_cast<int>(line * o.stride_h.number) - o.pad_h;
  const int column0 = static_cast<int>(column * o.stride_w.number) - o.pad_w;
  const WindowSpan down(o.dilation_h, row0, o.kernel_h, o.h);
  const WindowSpan across(o.dilation_w, column0, o.kernel_w, o.w);
  Greatest<T, N> greatest(down.any() && across.any(), down.first * o.kernel_w + across.first);
  for (int r0 = down.first; r0 < down.last; r0 += rows)
    for (int s0 = across.first; s0 < across.last; s0 += columns) {
      device::Raw<T, N> raw[rows][columns];
      unsigned column_at[columns];
#pragma unroll
      for (int s = 0; s < columns; ++s)
        column_at[s] = static_cast<unsigned>(column0 + across.nearest(s0 + s) *
                                                           static_cast<int>(o.dilation_w.number));
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const int row = row0 + down.nearest(r0 + r) * static_cast<int>(o.dilation_h.number);
#pragma unroll
        for (int s = 0; s < columns; ++s)
          raw[r][s] = from.raw((static_cast<unsigned>(row * o.w) + column_at[s]) * packs);
      }
#pragma unroll
      for (int r = 0; r < rows; ++r)
#pragma unroll
        for (int s = 0; s < columns; ++s)
          greatest.take(raw[r][s], down.nearest(r0 + r) * o.kernel_w + across.nearest(s0 + s));
    }
  return greatest;
}

/// A thread a window of N images or channels.
template <class T, int N, bool planes, int rows, int columns>
__global__ void __launch_bounds__(256, sizeof(T) == 2 ? 3 : 2)
    max_pool2d_kernel(const T* x, T* y, unsigned char* winners, const __grid_constant__ Pooling o,
                      const __grid_constant__ ImageWalk walk, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const ImageWalk::Place at = walk.place(i);
  const auto from = walk.lanes<N, planes>(x, static_cast<unsigned>(o.h * o.w), at);
  const auto greatest =
      greatest_of<T, N, planes, rows, columns>(from, o, walk.packs.number, at.line, at.column);
  wide<T> best[N];
  greatest.values(best);
  const unsigned to = walk.own_place<planes>(at);
  walk.own<N, planes>(y, at).store(to, best);
  walk.own_bytes<N, planes>(winners, at).store(to, greatest.template numbers<!planes>());
}

/// The same of planes that are held.
template <class T>
__global__ void __launch_bounds__(HeldPlanes::threads)
    max_pool2d_held_kernel(const T* x, T* y, unsigned char* winners,
                           const __grid_constant__ Pooling o,
                           const __grid_constant__ HeldPlanes planes) {
  constexpr int N = HeldPlanes::together;
  extern __shared__ uint4 memory[];
  const auto size = static_cast<uint32_t>(o.h * o.w), pixels = planes.pixels.number;
  const uint32_t before = planes.packs(size * sizeof(T)), after = planes.packs(pixels * sizeof(T));
  uint4 *const held_y = memory + before, *const held_winners = held_y + after;
  planes.load(memory, x, before);
  planes.wait();
  planes.for_each_pixel([&](uint32_t plane, uint32_t line, uint32_t column) {
    const ImageLanes<const T, N, true> from{reinterpret_cast<const T*>(memory) + plane * size,
                                            size};
    const auto greatest = greatest_of<T, N, true, 1, 3>(from, o, 1, line, column);
    wide<T> best[N];
    greatest.values(best);
    const uint32_t to = line * planes.columns.number + column, first = plane * pixels;
    ImageLanes<T, N, true>{reinterpret_cast<T*>(held_y) + first, pixels}.store(to, best);
    ByteLanes<N, true>{reinterpret_cast<unsigned char*>(held_winners) + first, pixels}.store(
        to, greatest.template numbers<false>());
  });
  __syncthreads();
  planes.store(held_y, y, after);
  planes.store(held_winners, winners, planes.packs(pixels));
}

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

  unsigned turns() const { return every_line * every_column; }

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

/// From an image to the next.
int64_t of_image(const Tensor& t) { return t.numel() / t.size(0); }

size_t image_bytes(const Tensor& t) {
  return static_cast<size_t>(of_image(t)) * size_of(t.dtype());
}

}  // namespace

void max_pool2d(const PoolWindows& o, const Tensor& x, const Tensor& y, const Tensor& winner,
                Stream stream) {
  const Pooling plan(o, x, y);
  const bool aligned = aligned16(x, y, winner);
  visit_floating("max_pool2d", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const size_t bytes[] = {image_bytes(x), image_bytes(y), image_bytes(winner)};
    if (const HeldPlanes planes = held_planes(y, {bytes[0], bytes[1], bytes[2]});
        planes.count > 0 && aligned) {
      max_pool2d_held_kernel<D>
          <<<grid_of("max_pool2d", x.size(0) / planes.count), HeldPlanes::threads,
             planes.count*(bytes[0] + bytes[1] + bytes[2]), native(stream)>>>(
              pointer<T>(x), pointer<T>(y), winner.data<uint8_t>(), plan, planes);
      return BS_CUDA_CHECK_LAUNCH("max_pool2d");
    }
    visit_image_lanes<T>(
        aligned, x, y,
        [&]<int N, bool planes>(std::integral_constant<int, N>, std::bool_constant<planes>) {
          // Planes, whose elements come one by one, have registers for a few.
          constexpr int most_rows = planes ? 1 : 3;
          const bool whole = o.kernel.h <= most_rows && o.kernel.w <= 3;
          const auto kernel = whole ? max_pool2d_kernel<D, N, planes, most_rows, 3>
                                    : max_pool2d_kernel<D, N, planes, 1, 3>;
          walk_images<N, planes>(
              "max_pool2d", y, [&](int64_t image, const ImageWalk& walk, unsigned count) {
                kernel<<<grid_of("max_pool2d", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                    pointer<T>(x) + image * of_image(x), pointer<T>(y) + image * of_image(y),
                    winner.data<uint8_t>() + image * of_image(y), plan, walk, count);
                BS_CUDA_CHECK_LAUNCH("max_pool2d");
              });
        });
  });
}

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
