#include <bs/kernels/block_float.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>
#include <limits>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

constexpr int threads = 256, warp = 32;

/// Magnitudes as integers, in whose order those that are not finite are the largest.
struct Magnitudes {
  static __device__ uint32_t of(float x) { return __float_as_uint(x) & 0x7fffffffU; }
  static __device__ uint64_t of(double x) {
    return static_cast<uint64_t>(__double_as_longlong(x)) & ~(uint64_t{1} << 63);
  }
  static __device__ bool is_finite(uint32_t bits) { return bits < 0x7f800000U; }
  static __device__ bool is_finite(uint64_t bits) { return bits < uint64_t{0x7ff} << 52; }
  /// The exponent of a number that is not zero; a subnormal one has no bits of it.
  static __device__ int exponent(uint32_t bits) {
    return bits >> 23 ? static_cast<int>(bits >> 23) - 127 : -118 - __clz(static_cast<int>(bits));
  }
  static __device__ int exponent(uint64_t bits) {
    const auto biased = static_cast<int>(bits >> 52);
    return biased ? biased - 1023 : -1011 - __clzll(static_cast<long long>(bits));
  }
};

__device__ float power_of_two(int exponent, float) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}
__device__ double power_of_two(int exponent, double) {
  return __longlong_as_double(static_cast<long long>(exponent + 1023) << 52);
}

/// Rounds to multiples of 2^exponent. Powers of two go in two factors, since one may be out of
/// range; what the first loses, the rounding loses too.
template <class W>
struct Rounding {
  W up[2], down[2], top;

  __device__ Rounding(int exponent, int bits) : top(power_of_two(bits - 1, W())) {
    const int half = exponent / 2, rest = exponent - half;
    up[0] = power_of_two(-half, W());
    up[1] = power_of_two(-rest, W());
    down[0] = power_of_two(half, W());
    down[1] = power_of_two(rest, W());
  }
  __device__ W operator()(W x) const {
    const W steps = min(max(rint(x * up[0] * up[1]), -top), top - 1);
    return steps * down[0] * down[1];
  }
};

/// Rows of n numbers, cut into blocks.
struct Blocks {
  int64_t count, n, of_row;
  Divisor narrow_of_row;
  BlockFloat format;

  /// Where a block begins, and how many numbers it has.
  __device__ int64_t find(int64_t block, int& size) const {
    const int64_t row = count <= std::numeric_limits<int32_t>::max()
                            ? narrow_of_row.divide(static_cast<uint32_t>(block))
                            : block / of_row;
    const int64_t column = (block - row * of_row) * format.block;
    size = static_cast<int>(min(int64_t{format.block}, n - column));
    return row * n + column;
  }
};

/// Some lanes of a warp, a power of two, have a block of numbers in packs of N. Each holds its
/// first one; a long block's others are loaded again.
template <class T, int N>
__global__ void __launch_bounds__(threads)
    block_float_kernel(const T* x, T* y, const __grid_constant__ Blocks blocks, int log_lanes) {
  using W = wide<T>;
  using Bits = decltype(Magnitudes::of(W()));
  const auto thread = int64_t{blockIdx.x} * threads + threadIdx.x;
  const int lanes = 1 << log_lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t step = int64_t{gridDim.x} * threads;
  // Lanes without a block go along with those of their warp that have one.
  for (int64_t at = thread; (at & -warp) < blocks.count << log_lanes; at += step) {
    const bool is_block = at >> log_lanes < blocks.count;
    int size = 0;
    const int64_t begin = is_block ? blocks.find(at >> log_lanes, size) : 0;
    const int packs = size / N;
    const auto* const from = reinterpret_cast<const Raw<T, N>*>(x + begin);
    Raw<T, N> first{};
    if (lane < packs) first = from[lane];
    Bits largest = 0;
    const auto look = [&](const Raw<T, N>& raw) {
      W values[N];
      device::widen_pack<T, N>(raw, values);
#pragma unroll
      for (int i = 0; i < N; ++i) largest = max(largest, Magnitudes::of(values[i]));
    };
    look(first);
    for (int p = lane + lanes; p < packs; p += lanes) look(from[p]);
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, offset));
    const bool rounds = largest != 0 && Magnitudes::is_finite(largest);
    const int bits = blocks.format.bits;
    const Rounding<W> round(rounds ? Magnitudes::exponent(largest) + 2 - bits : 0, bits);
    const auto store = [&](int p, const Raw<T, N>& raw) {
      if (!rounds) {
        reinterpret_cast<Raw<T, N>*>(y + begin)[p] = raw;
        return;
      }
      W values[N];
      device::widen_pack<T, N>(raw, values);
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = round(values[i]);
      store_pack<N>(y + begin, static_cast<unsigned>(p), values);
    };
    if (lane < packs) store(lane, first);
    for (int p = lane + lanes; p < packs; p += lanes) store(p, from[p]);
  }
}

}  // namespace

void block_float(const Tensor& x, const Tensor& y, BlockFloat format, Stream stream) {
  const int64_t n = x.size(-1), of_row = ceil_div(n, format.block);
  const Blocks blocks{x.numel() / n * of_row, n, of_row, Divisor(of_row), format};
  visit_floating("block_float", x.dtype(), [&]<class T>(Type<T>) {
    // Packs lie within blocks.
    const bool packs = aligned16(x, y) && format.block % device::pack_size<T> == 0;
    visit_pack<T>(packs, n, [&]<int N>(std::integral_constant<int, N>) {
      int log_lanes = 0;
      while (log_lanes < 5 && std::min<int64_t>(n, format.block) > int64_t{N} << log_lanes)
        ++log_lanes;
      block_float_kernel<device_type<T>, N>
          <<<grid_size(blocks.count << log_lanes, threads, x.device()), threads, 0,
             native(stream)>>>(pointer<T>(x), pointer<T>(y), blocks, log_lanes);
    });
  });
  BS_CUDA_CHECK_LAUNCH("block_float");
}

}  // namespace bs::cuda
