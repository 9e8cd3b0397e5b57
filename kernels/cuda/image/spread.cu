#include <bs/kernels/avg_pool2d.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

constexpr int threads = 256, together = 4;

/// Packs of y: of a plane, or of an image's pixels.
struct SpreadPacks {
  Divisor of_pixel;  ///< 1 of planes
  Divisor of_image;
  uint32_t count;
};

/// Some packs of y a thread, as far apart as a block has threads: what they read is asked for at
/// once, for a store alone takes less time than a load.
template <class T, int N, bool planes>
__global__ void __launch_bounds__(threads)
    spread_kernel(const T* x, T* y, device::wide<T> share, const __grid_constant__ SpreadPacks p) {
  using W = device::wide<T>;
  constexpr int read = planes ? 1 : N;
  const uint32_t first = blockIdx.x * (threads * together) + threadIdx.x;
  device::Raw<T, read> raw[together];
#pragma unroll
  for (uint32_t u = 0; u < together; ++u) {
    const uint32_t i = first + u * threads;
    if (i >= p.count) continue;
    const uint32_t pack = planes ? 0 : i - p.of_pixel.divide(i) * p.of_pixel.number;
    const uint32_t from = p.of_image.divide(i) * p.of_pixel.number + pack;
    raw[u] = reinterpret_cast<const device::Raw<T, read>*>(x)[from];
  }
#pragma unroll
  for (uint32_t u = 0; u < together; ++u) {
    const uint32_t i = first + u * threads;
    if (i >= p.count) return;
    W seen[read], v[N];
    device::widen_pack<T, read>(raw[u], seen);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = seen[planes ? 0 : k] * share;
    store_pack<N>(y, i, v);
  }
}

}  // namespace

void spread_over_pixels(const Tensor& x, double share, const Tensor& y, Stream stream) {
  const int64_t pixels = y.size(1), channels = y.size(2);
  const auto run = [&]<class T, int N, bool planes>(Type<T>, std::integral_constant<int, N>,
                                                    std::bool_constant<planes>) {
    using D = device_type<T>;
    constexpr int64_t limit = (int64_t{1} << 31) - 1;
    const int64_t packs = pixels * channels / N;
    BS_CHECK(packs <= limit, "adaptive_avg_pool2d_backward: {} packs of an image are more than {}",
             packs, limit);
    const int64_t most = limit / packs;  // images that 32 bits count the packs of
    for (int64_t first = 0; first < y.size(0); first += most) {
      const int64_t count = std::min(most, y.size(0) - first) * packs;
      spread_kernel<D, N, planes>
          <<<grid_of("adaptive_avg_pool2d_backward", ceil_div(count, threads * together)), threads,
             0, native(stream)>>>(pointer<T>(x) + first * channels,
                                  pointer<T>(y) + first * pixels * channels,
                                  static_cast<device::wide<D>>(share),
                                  SpreadPacks{Divisor(planes ? 1 : channels / N), Divisor(packs),
                                              static_cast<uint32_t>(count)});
      BS_CUDA_CHECK_LAUNCH("adaptive_avg_pool2d_backward");
    }
  };
  visit_floating("adaptive_avg_pool2d_backward", y.dtype(), [&]<class T>(Type<T>) {
    const bool planes = channels == 1;
    visit_pack<T>(aligned16(x, y), planes ? pixels : channels, [&](auto n) {
      planes ? run(Type<T>{}, n, std::true_type{}) : run(Type<T>{}, n, std::false_type{});
    });
  });
}

}  // namespace bs::cuda
