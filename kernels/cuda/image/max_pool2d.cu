#include <bs/kernels/max_pool2d.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/image/held_planes.cuh>
#include <bs/kernels/cuda/image/image_lanes.cuh>
#include <bs/kernels/cuda/image/max_pool2d.cuh>

#include <limits>

namespace bs::cuda {

namespace {

using device::wide;

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

/// The same without numbers, for which two elements are compared by one instruction.
template <class T, int N>
struct GreatestValues {
  static constexpr bool pairs = in_pairs<T, N>;
  static constexpr int parts = pairs ? N / 2 : N;
  std::conditional_t<pairs, unsigned, wide<T>> best[parts];

  __device__ GreatestValues(bool any, int) {
#pragma unroll
    for (int k = 0; k < parts; ++k)
      if constexpr (pairs) {
        const auto lowest = device::narrow_pair(-INFINITY, -INFINITY, T{});
        best[k] = any ? reinterpret_cast<const unsigned&>(lowest) : 0;
      } else {
        best[k] = any ? -std::numeric_limits<wide<T>>::infinity() : wide<T>(0);
      }
  }
  __device__ void take(const device::Raw<T, N>& raw, int) {
    if constexpr (pairs) {
      using Pair = decltype(device::narrow_pair(0.F, 0.F, T{}));
#pragma unroll
      for (int k = 0; k < parts; ++k) {
        const unsigned word = reinterpret_cast<const device::Pack<unsigned, parts>&>(raw).at[k];
        const auto greatest = __hmax2_nan(reinterpret_cast<const Pair&>(best[k]),
                                          reinterpret_cast<const Pair&>(word));
        best[k] = reinterpret_cast<const unsigned&>(greatest);
      }
    } else {
      wide<T> v[N];
      device::widen_pack<T, N>(raw, v);
#pragma unroll
      for (int k = 0; k < N; ++k) best[k] = v[k] > best[k] || v[k] != v[k] ? v[k] : best[k];
    }
  }
  __device__ void values(wide<T> (&to)[N]) const {
    if constexpr (pairs) {
      device::widen_pack<T, N>(reinterpret_cast<const device::Raw<T, N>&>(best), to);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) to[k] = best[k];
    }
  }
};
template <class T, int N, bool numbered>
using Found = std::conditional_t<numbered, Greatest<T, N>, GreatestValues<T, N>>;

/// The greatest elements of the window at a line and column of y. `rows` x `columns` of them are
/// asked for at once, which are whole rows of it where `rows` is more than 1. What would lie behind
/// the last row or column is that one again, which changes nothing.
template <class T, int N, bool planes, int rows, int columns, bool numbered>
__device__ Found<T, N, numbered> greatest_of(const ImageLanes<const T, N, planes>& from,
                                             const Pooling& o, uint32_t packs, uint32_t line,
                                             uint32_t column) {
  const int row0 = static_cast<int>(line * o.stride_h.number) - o.pad_h;
  const int column0 = static_cast<int>(column * o.stride_w.number) - o.pad_w;
  const WindowSpan down(o.dilation_h, row0, o.kernel_h, o.h);
  const WindowSpan across(o.dilation_w, column0, o.kernel_w, o.w);
  Found<T, N, numbered> greatest(down.any() && across.any(),
                                 down.first * o.kernel_w + across.first);
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
          raw[r][s] = from.raw(
              (static_cast<unsigned>(row) * static_cast<unsigned>(o.w) + column_at[s]) * packs);
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
template <class T, int N, bool planes, int rows, int columns, bool numbered>
__global__ void __launch_bounds__(256, sizeof(T) == 2 ? 3 : 2)
    max_pool2d_kernel(const T* x, T* y, unsigned char* winners, const __grid_constant__ Pooling o,
                      const __grid_constant__ ImageWalk walk, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const ImageWalk::Place at = walk.place(i);
  const auto from =
      walk.lanes<N, planes>(x, static_cast<unsigned>(o.h) * static_cast<unsigned>(o.w), at);
  const auto greatest = greatest_of<T, N, planes, rows, columns, numbered>(
      from, o, walk.packs.number, at.line, at.column);
  wide<T> best[N];
  greatest.values(best);
  const unsigned to = walk.own_place<planes>(at);
  walk.own<N, planes>(y, at).store(to, best);
  if constexpr (numbered)
    walk.own_bytes<N, planes>(winners, at).store(to, greatest.template numbers<!planes>());
}

/// The same of planes that are held.
template <class T, bool numbered>
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
    const auto greatest = greatest_of<T, N, true, 1, 3, numbered>(from, o, 1, line, column);
    wide<T> best[N];
    greatest.values(best);
    const uint32_t to = line * planes.columns.number + column, first = plane * pixels;
    ImageLanes<T, N, true>{reinterpret_cast<T*>(held_y) + first, pixels}.store(to, best);
    if constexpr (numbered)
      ByteLanes<N, true>{reinterpret_cast<unsigned char*>(held_winners) + first, pixels}.store(
          to, greatest.template numbers<false>());
  });
  __syncthreads();
  planes.store(held_y, y, after);
  if constexpr (numbered) planes.store(held_winners, winners, planes.packs(pixels));
}

template <class T, bool numbered>
void pool(const PoolWindows& o, const Tensor& x, const Tensor& y, const Tensor& winner,
          Stream stream) {
  using D = device_type<T>;
  const Pooling plan(o, x, y);
  const bool aligned = aligned16(x, y, winner);
  auto* const winners = numbered ? winner.data<uint8_t>() : nullptr;
  const size_t bytes[] = {image_bytes(x), image_bytes(y), numbered ? image_bytes(winner) : 0};
  if (const HeldPlanes planes = held_planes(y, {bytes[0], bytes[1], bytes[2]});
      planes.count > 0 && aligned) {
    max_pool2d_held_kernel<D, numbered>
        <<<grid_of("max_pool2d", x.size(0) / planes.count), HeldPlanes::threads,
           planes.count*(bytes[0] + bytes[1] + bytes[2]), native(stream)>>>(
            pointer<T>(x), pointer<T>(y), winners, plan, planes);
    return BS_CUDA_CHECK_LAUNCH("max_pool2d");
  }
  visit_image_lanes<T>(
      aligned, x, y,
      [&]<int N, bool planes>(std::integral_constant<int, N>, std::bool_constant<planes>) {
        // Planes, whose elements come one by one, have registers for a few.
        constexpr int most_rows = planes ? 1 : 3;
        check_read<N, planes>("max_pool2d", x);
        const bool whole = o.kernel.h <= most_rows && o.kernel.w <= 3;
        const auto kernel = whole ? max_pool2d_kernel<D, N, planes, most_rows, 3, numbered>
                                  : max_pool2d_kernel<D, N, planes, 1, 3, numbered>;
        walk_images<N, planes>(
            "max_pool2d", y, [&](int64_t image, const ImageWalk& walk, unsigned count) {
              kernel<<<grid_of("max_pool2d", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                  pointer<T>(x) + image * of_image(x), pointer<T>(y) + image * of_image(y),
                  numbered ? winners + image * of_image(y) : nullptr, plan, walk, count);
              BS_CUDA_CHECK_LAUNCH("max_pool2d");
            });
      });
}

}  // namespace

void max_pool2d(const PoolWindows& o, const Tensor& x, const Tensor& y, const Tensor& winner,
                Stream stream) {
  visit_floating("max_pool2d", x.dtype(), [&]<class T>(Type<T>) {
    winner.defined() ? pool<T, true>(o, x, y, winner, stream)
                     : pool<T, false>(o, x, y, winner, stream);
  });
}

}  // namespace bs::cuda
