#include <bs/kernels/max_pool2d.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

namespace bs::cuda {

namespace {

using device::Pack;
using device::Raw;
using device::wide;

/// Windows over images of h x w pixels of `packs` packs; threads walk images of `lines` lines of
/// `columns` pixels, outputs forward and inputs backward.
struct Pooling {
  int h, w, p, q;
  int kernel_h, kernel_w, pad_h, pad_w;
  Divisor dilation_h, dilation_w, stride_h, stride_w;
  Divisor packs, columns, lines;

  struct Place {
    unsigned pack, column, line, image;
  };
  __device__ Place place(unsigned i) const {
    const unsigned pixel = packs.divide(i), line = columns.divide(pixel);
    const unsigned image = lines.divide(line);
    return {i - pixel * packs.number, pixel - line * columns.number, line - image * lines.number,
            image};
  }
};

template <class T, int N>
__global__ void __launch_bounds__(256)
    max_pool2d_kernel(const T* x, T* y, unsigned char* winners, const __grid_constant__ Pooling o,
                      unsigned count) {
  using W = wide<T>;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const auto [pack, q, p, image] = o.place(i);
  const auto* from = reinterpret_cast<const Raw<T, N>*>(x) +
                     static_cast<uint64_t>(image) * o.h * o.w * o.packs.number + pack;
  const int row0 = static_cast<int>(p * o.stride_h.number) - o.pad_h;
  const int column0 = static_cast<int>(q * o.stride_w.number) - o.pad_w;
  W best[N] = {};
  Pack<unsigned char, N> winner = {};
  bool first = true;
  for (int r = 0; r < o.kernel_h; ++r) {
    const int row = row0 + r * static_cast<int>(o.dilation_h.number);
    if (row < 0 || row >= o.h) continue;
#pragma unroll 3
    for (int s = 0; s < o.kernel_w; ++s) {
      const int column = column0 + s * static_cast<int>(o.dilation_w.number);
      if (column < 0 || column >= o.w) continue;
      W v[N];
      device::widen_pack<T, N>(from[static_cast<unsigned>(row * o.w + column) * o.packs.number], v);
      const auto number = static_cast<unsigned char>(r * o.kernel_w + s);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const bool wins = first || v[k] > best[k] || v[k] != v[k];
        best[k] = wins ? v[k] : best[k];
        winner.at[k] = wins ? number : winner.at[k];
      }
      first = false;
    }
  }
  store_pack<N>(y, i, best);
  reinterpret_cast<Pack<unsigned char, N>*>(winners)[i] = winner;
}

/// The windows of an axis that reach over a place, counted from the padding's begin.
struct WindowRange {
  int first, last;

  __device__ WindowRange(const Divisor& stride, int place, unsigned reach, int windows) {
    const int before = place - static_cast<int>(reach) + static_cast<int>(stride.number) - 1;
    first = before > 0 ? static_cast<int>(stride.divide(static_cast<unsigned>(before))) : 0;
    last = min(static_cast<int>(stride.divide(static_cast<unsigned>(place))), windows - 1);
  }
};

/// Which element of a window is at a place in it; -1 for none.
__device__ int element(const Divisor& dilation, int place) {
  const auto number = dilation.divide(static_cast<unsigned>(place));
  return number * dilation.number == static_cast<unsigned>(place) ? static_cast<int>(number) : -1;
}

/// A thread a pack of dx, which looks at the windows it lies in.
template <class T, int N>
__global__ void __launch_bounds__(256)
    max_pool2d_backward_kernel(const T* dy, const unsigned char* winners, T* dx,
                               const __grid_constant__ Pooling o, unsigned count) {
  using W = wide<T>;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const auto [pack, column, row, image] = o.place(i);
  const uint64_t base = static_cast<uint64_t>(image) * o.p * o.q * o.packs.number + pack;
  const auto* from = reinterpret_cast<const Raw<T, N>*>(dy) + base;
  const auto* won = reinterpret_cast<const Pack<unsigned char, N>*>(winners) + base;
  W sum[N] = {};
  const int below = static_cast<int>(row) + o.pad_h, right = static_cast<int>(column) + o.pad_w;
  const WindowRange rows(o.stride_h, below,
                         o.dilation_h.number * static_cast<unsigned>(o.kernel_h - 1), o.p);
  const WindowRange columns(o.stride_w, right,
                            o.dilation_w.number * static_cast<unsigned>(o.kernel_w - 1), o.q);
  for (int p = rows.first; p <= rows.last; ++p) {
    const int r = element(o.dilation_h, below - p * static_cast<int>(o.stride_h.number));
    if (r < 0) continue;
    for (int q = columns.first; q <= columns.last; ++q) {
      const int s = element(o.dilation_w, right - q * static_cast<int>(o.stride_w.number));
      if (s < 0) continue;
      const unsigned at = static_cast<unsigned>(p * o.q + q) * o.packs.number;
      const Pack<unsigned char, N> winner = won[at];
      W slope[N];
      device::widen_pack<T, N>(from[at], slope);
      const auto number = static_cast<unsigned char>(r * o.kernel_w + s);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += winner.at[k] == number ? slope[k] : W(0);
    }
  }
  store_pack<N>(dx, i, sum);
}

/// For threads that walk images of lines x columns pixels.
Pooling pooling(const PoolWindows& o, const Tensor& x, const Tensor& y, const Tensor& walked,
                int N) {
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  return {number(x.size(1)),      number(x.size(2)),       number(y.size(1)),
          number(y.size(2)),      number(o.kernel.h),      number(o.kernel.w),
          number(o.padding.h),    number(o.padding.w),     Divisor(o.dilation.h),
          Divisor(o.dilation.w),  Divisor(o.stride.h),     Divisor(o.stride.w),
          Divisor(x.size(3) / N), Divisor(walked.size(2)), Divisor(walked.size(1))};
}

/// Calls launch(first image, packs) for as many images at a time as 32 bits count the packs of.
template <class F>
void for_each_batch(const char* op, const Tensor& walked, int N, F&& launch) {
  constexpr int64_t limit = (int64_t{1} << 31) - 1;
  const int64_t of_image = walked.numel() / walked.size(0) / N;
  BS_CHECK(of_image <= limit, "{}: {} packs of an image are more than {}", op, of_image, limit);
  const int64_t most = std::max<int64_t>(1, limit / of_image);
  for (int64_t image = 0; image < walked.size(0); image += most)
    launch(image, static_cast<unsigned>(std::min(most, walked.size(0) - image) * of_image));
}

}  // namespace

void max_pool2d(const PoolWindows& o, const Tensor& x, const Tensor& y, const Tensor& winner,
                Stream stream) {
  visit_floating("max_pool2d", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(aligned16(x, y, winner), x.size(3), [&]<int N>(std::integral_constant<int, N>) {
      const Pooling plan = pooling(o, x, y, y, N);
      for_each_batch("max_pool2d", y, N, [&](int64_t image, unsigned count) {
        const int64_t at = image * (y.numel() / y.size(0));
        max_pool2d_kernel<D, N>
            <<<grid_of("max_pool2d", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                pointer<T>(x) + image * (x.numel() / x.size(0)), pointer<T>(y) + at,
                winner.data<uint8_t>() + at, plan, count);
        BS_CUDA_CHECK_LAUNCH("max_pool2d");
      });
    });
  });
}

void max_pool2d_backward(const PoolWindows& o, const Tensor& dy, const Tensor& winner,
                         const Tensor& dx, Stream stream) {
  visit_floating("max_pool2d_backward", dx.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(
        aligned16(dy, dx, winner), dx.size(3), [&]<int N>(std::integral_constant<int, N>) {
          const Pooling plan = pooling(o, dx, dy, dx, N);
          for_each_batch("max_pool2d_backward", dx, N, [&](int64_t image, unsigned count) {
            const int64_t at = image * (dy.numel() / dy.size(0));
            max_pool2d_backward_kernel<D, N>
                <<<grid_of("max_pool2d", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                    pointer<T>(dy) + at, winner.data<uint8_t>() + at,
                    pointer<T>(dx) + image * (dx.numel() / dx.size(0)), plan, count);
            BS_CUDA_CHECK_LAUNCH("max_pool2d_backward");
          });
        });
  });
}

}  // namespace bs::cuda
