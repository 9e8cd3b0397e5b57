#include <bs/kernels/bincount.h>
#include <bs/kernels/fill.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/rows.cuh>

#include <limits>

namespace bs::cuda {

// Blocks count in shared memory, and each adds a number's count to the whole once. Bounds are found
// meanwhile, since x is read once then; where a number is too large, atomics on memory count.

namespace {

constexpr int threads = 1024, blocks_of_multiprocessor = 1;
constexpr int bins = static_cast<int>(counted_numbers);
using Count = unsigned long long;

struct Found {
  Count* counts;
  long long *least, *greatest;
};

__global__ void prepare_kernel(Found found) {
  for (int bin = static_cast<int>(threadIdx.x); bin < bins; bin += threads) found.counts[bin] = 0;
  if (threadIdx.x > 0) return;
  *found.least = std::numeric_limits<long long>::max();
  *found.greatest = std::numeric_limits<long long>::min();
}

/// Calls f(number) for the block's share, of packs of N; several are on their way at a time.
template <int N, class I, class F>
__device__ void for_each_number(const I* x, int64_t n, F&& f) {
  using Pack = device::Pack<I, N>;
  constexpr int ahead = 4;
  const int64_t packs = n / N, step = int64_t{gridDim.x} * threads;
  for (int64_t first = int64_t{blockIdx.x} * threads + threadIdx.x; first < packs;
       first += ahead * step) {
    Pack pack[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (first + u * step < packs) pack[u] = reinterpret_cast<const Pack*>(x)[first + u * step];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (first + u * step < packs)
#pragma unroll
        for (int i = 0; i < N; ++i) f(pack[u].at[i]);
  }
  const int64_t rest = packs * N + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) f(x[rest]);
}

template <class I, int N>
__global__ void __launch_bounds__(threads, blocks_of_multiprocessor)
    count_few_kernel(const I* x, int64_t n, Found found) {
  __shared__ unsigned counts[bins];
  for (int bin = static_cast<int>(threadIdx.x); bin < bins; bin += threads) counts[bin] = 0;
  __syncthreads();
  I least = std::numeric_limits<I>::max(), greatest = std::numeric_limits<I>::min();
  for_each_number<N>(x, n, [&](I number) {
    least = min(least, number);
    greatest = max(greatest, number);
    if (number >= 0 && number < bins) atomicAdd(counts + number, 1U);
  });
  // The least is the greatest of what has all bits turned.
  constexpr I lowest = std::numeric_limits<I>::min();
  least = ~device::block_reduce(static_cast<I>(~least), device::Max{}, lowest);
  greatest = device::block_reduce(greatest, device::Max{}, lowest);
  if (threadIdx.x == 0) {
    atomicMin(found.least, static_cast<long long>(least));
    atomicMax(found.greatest, static_cast<long long>(greatest));
  }
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < bins; bin += threads)
    if (counts[bin] > 0) atomicAdd(found.counts + bin, Count{counts[bin]});
}

template <class I, int N>
__global__ void __launch_bounds__(threads, blocks_of_multiprocessor)
    count_all_kernel(const I* x, int64_t n, Count* counts) {
  for_each_number<N>(x, n, [&](I number) { atomicAdd(counts + number, Count{1}); });
}

Count* counts_of(const Tensor& counts) { return reinterpret_cast<Count*>(counts.data<int64_t>()); }

/// Calls f(Type<I>, std::integral_constant<int, N>) with the integer and how many are one load.
template <class F>
void visit_numbers(const Tensor& x, F&& f) {
  visit_index("bincount", x.dtype(), [&]<class I>(Type<I>) {
    constexpr int most = device::pack_size<I>;
    if (aligned16(x)) return f(Type<I>{}, std::integral_constant<int, most>{});
    f(Type<I>{}, std::integral_constant<int, 1>{});
  });
}

unsigned grid_of(const Tensor& x) {
  return grid_size(x.numel(), threads, x.device(), blocks_of_multiprocessor);
}

}  // namespace

void count_few(const Tensor& x, const Tensor& found, Stream stream) {
  auto* const bounds = reinterpret_cast<long long*>(found.data<int64_t>()) + bins;
  const Found to{counts_of(found), bounds, bounds + 1};
  prepare_kernel<<<1, threads, 0, native(stream)>>>(to);
  visit_numbers(x, [&]<class I, int N>(Type<I>, std::integral_constant<int, N>) {
    count_few_kernel<I, N>
        <<<grid_of(x), threads, 0, native(stream)>>>(pointer<I>(x), x.numel(), to);
  });
  BS_CUDA_CHECK_LAUNCH("bincount");
}

void count_all(const Tensor& x, const Tensor& counts, Stream stream) {
  fill(counts, 0, stream);
  visit_numbers(x, [&]<class I, int N>(Type<I>, std::integral_constant<int, N>) {
    count_all_kernel<I, N>
        <<<grid_of(x), threads, 0, native(stream)>>>(pointer<I>(x), x.numel(), counts_of(counts));
  });
  BS_CUDA_CHECK_LAUNCH("bincount");
}

}  // namespace bs::cuda
