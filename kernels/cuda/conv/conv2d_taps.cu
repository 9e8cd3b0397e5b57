#include <bs/kernels/cuda/conv/conv2d_few.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

namespace bs::cuda {

namespace {

constexpr int threads = 256, pack = 8;

struct TapWalk {
  std::array<GatheredTap, GatheredTaps::channels> taps;
  int32_t h, w, c, step_h, step_w;
  Divisor columns, rows;  ///< of the image that is made
};

/// A thread eight channels of a pixel: one store of 16 bytes.
template <class T>
__global__ void __launch_bounds__(threads)
    gather_taps_kernel(const T* x, T* to, const __grid_constant__ TapWalk walk, uint32_t count) {
  __shared__ GatheredTap taps[GatheredTaps::channels];
  if (threadIdx.x < GatheredTaps::channels) taps[threadIdx.x] = walk.taps[threadIdx.x];
  __syncthreads();
  const uint32_t i = blockIdx.x * threads + threadIdx.x;
  if (i >= count) return;
  constexpr uint32_t packs = GatheredTaps::channels / pack;
  const uint32_t pixel = i / packs, line = walk.columns.divide(pixel);
  const uint32_t image = walk.rows.divide(line);
  const int column0 = static_cast<int>(pixel - line * walk.columns.number) * walk.step_w;
  const int row0 = static_cast<int>(line - image * walk.rows.number) * walk.step_h;
  const T* from = x + int64_t{image} * walk.h * walk.w * walk.c;
  device::Pack<T, pack> values;
#pragma unroll
  for (int k = 0; k < pack; ++k) {
    const GatheredTap tap = taps[i % packs * pack + k];
    const int row = row0 + tap.h, column = column0 + tap.w;
    const bool inside = tap.c >= 0 && row >= 0 && row < walk.h && column >= 0 && column < walk.w;
    const int64_t at = (int64_t{row} * walk.w + column) * walk.c + tap.c;  // images may be large
    values.at[k] = inside ? from[at] : T(0);
  }
  reinterpret_cast<device::Pack<T, pack>*>(to)[i] = values;
}

}  // namespace

void gather_taps(const GatheredTaps& by, const Tensor& x, const Tensor& to, Stream stream) {
  const auto number = [](int64_t n) { return static_cast<int32_t>(n); };
  const TapWalk walk{
      by.taps,           number(x.size(1)), number(x.size(2)),   number(x.size(3)),
      number(by.step_h), number(by.step_w), Divisor(to.size(2)), Divisor(to.size(1))};
  visit_floating("conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) == 2) {
      using D = device_type<T>;
      // As many images at a time as 32 bits count the packs of.
      const int64_t of_image = to.numel() / to.size(0) / pack;
      constexpr int64_t limit = (int64_t{1} << 31) - 1;
      BS_CHECK(of_image <= limit, "conv2d_backward_w: {} packs of an image are more than {}",
               of_image, limit);
      const int64_t most = limit / of_image;
      for (int64_t n = 0; n < to.size(0); n += most) {
        const int64_t count = std::min(most, to.size(0) - n) * of_image;
        gather_taps_kernel<D><<<grid_of("conv2d_backward_w", ceil_div(count, threads)), threads, 0,
                                native(stream)>>>(pointer<T>(x) + n * (x.numel() / x.size(0)),
                                                  pointer<T>(to) + n * of_image * pack, walk,
                                                  static_cast<uint32_t>(count));
        BS_CUDA_CHECK_LAUNCH("conv2d_backward_w");
      }
    }
  });
}

}  // namespace bs::cuda
