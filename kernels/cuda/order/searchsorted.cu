#include <bs/kernels/scan.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

#include <algorithm>
#include <bit>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

template <bool right, class W>
__device__ bool lies_below(W here, W value) {
  return right ? here <= value : here < value;
}

/// A row in shared memory, element i in slot i + 1, in bytes from its begin on. The first probes of
/// searches are powers of two apart: gaps behind every 128 and every 4096 bytes keep them out of
/// one bank. As bits of slots do not meet there, the place of a sum is the sum of places.
template <class T>
struct SortedRow {
  static constexpr unsigned line = 128, page = 4096, gap = sizeof(T) < 4 ? 4 : sizeof(T);

  static __host__ __device__ unsigned with_gaps(unsigned bytes) {
    return bytes + (bytes / line + bytes / page) * gap;
  }
  static __host__ __device__ unsigned place(unsigned slot) {
    return with_gaps(static_cast<unsigned>(slot * sizeof(T)));
  }
  static __device__ unsigned slot(unsigned place) {
    constexpr unsigned whole_page = page + (page / line + 1) * gap;
    const unsigned pages = place / whole_page, rest = place - pages * whole_page;
    const unsigned in_page = rest - rest / (line + gap) * gap;
    return (pages * page + in_page) / static_cast<unsigned>(sizeof(T));
  }
};

/// A block some values of a row, some of a thread side by side, whose loads of a step are on their
/// way together.
template <class T, bool right>
__global__ void __launch_bounds__(threads)
    search_held_kernel(const T* sorted, const T* values, int64_t* y, unsigned n, int64_t m,
                       unsigned chunk, unsigned chunks) {
  using Row = SortedRow<T>;
  constexpr int several = 4;
  extern __shared__ uint4 memory[];
  auto* const held = reinterpret_cast<char*>(memory);
  const int64_t row = blockIdx.x / chunks, first = int64_t{blockIdx.x % chunks} * chunk;
  const T* const from = sorted + row * n;
#pragma unroll 8
  for (unsigned i = threadIdx.x; i < n; i += threads)
    *reinterpret_cast<T*>(held + Row::place(i + 1)) = from[i];
  __syncthreads();
  const auto count = static_cast<unsigned>(min(m - first, int64_t{chunk}));
  constexpr unsigned least = sizeof(T);
  const unsigned last = Row::place(n), top = least << (31 - __clz(static_cast<int>(n)));
  values += row * m + first;
  y += row * m + first;
  for (unsigned e = threadIdx.x; e < count; e += several * threads) {
    device::wide<T> value[several];
    unsigned low[several];
#pragma unroll
    for (int k = 0; k < several; ++k) {
      value[k] = device::widen(values[min(e + k * threads, count - 1)]);
      low[k] = 0;
    }
#pragma unroll 1
    for (unsigned step = top; step >= least; step /= 2) {
      const unsigned by = Row::with_gaps(step);
#pragma unroll
      for (int k = 0; k < several; ++k) {
        // Behind the last element stands none: where that one lies below, it is the answer.
        const unsigned at = min(low[k] + by, last);
        const T here = *reinterpret_cast<const T*>(held + at);
        low[k] = lies_below<right>(device::widen(here), value[k]) ? at : low[k];
      }
    }
#pragma unroll
    for (int k = 0; k < several; ++k)
      if (e + k * threads < count) y[e + k * threads] = Row::slot(low[k]);
  }
}

/// A thread a value of any row, which stays in memory.
template <class T, bool right>
__global__ void __launch_bounds__(threads)
    search_kernel(const T* sorted, const T* values, int64_t* y, int64_t n, int64_t m,
                  int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const T* row = sorted + e / m * n;
    const auto value = device::widen(values[e]);
    int64_t low = 0;
    for (int64_t high = n; low < high;) {
      const int64_t middle = (low + high) / 2;
      const bool below = lies_below<right>(device::widen(row[middle]), value);
      (below ? low : high) = below ? middle + 1 : middle;
    }
    y[e] = low;
  }
}

template <class T, bool right>
void search(const Tensor& sorted, const Tensor& values, const Tensor& y, Stream stream) {
  using D = device_type<T>;
  constexpr int64_t most_bytes = 48 << 10, most_blocks = int64_t{1} << 31;
  const int64_t n = sorted.size(1), m = values.size(1);
  // As many values as elements share a row, so that loading it costs little beside the searches.
  const int64_t chunk = std::max<int64_t>(n, 1024), chunks = ceil_div(m, chunk);
  const bool fits = n > 0 && n < most_bytes / static_cast<int64_t>(sizeof(T));
  const size_t bytes = fits ? SortedRow<D>::place(static_cast<unsigned>(n)) + sizeof(T) : 0;
  if (fits && bytes <= most_bytes && m >= threads && n <= 8 * m &&
      y.size(0) * chunks < most_blocks) {
    search_held_kernel<D, right>
        <<<grid_of("searchsorted", y.size(0) * chunks), threads, bytes, native(stream)>>>(
            pointer<T>(sorted), pointer<T>(values), y.data<int64_t>(), static_cast<unsigned>(n), m,
            static_cast<unsigned>(chunk), static_cast<unsigned>(chunks));
  } else {
    search_kernel<D, right>
        <<<grid_size(y.numel(), threads, y.device()), threads, 0, native(stream)>>>(
            pointer<T>(sorted), pointer<T>(values), y.data<int64_t>(), n, m, y.numel());
  }
  BS_CUDA_CHECK_LAUNCH("searchsorted");
}

}  // namespace

void searchsorted(const Tensor& sorted, const Tensor& values, const Tensor& y, bool right,
                  Stream stream) {
  const auto run = [&]<class T>(Type<T>) {
    right ? search<T, true>(sorted, values, y, stream)
          : search<T, false>(sorted, values, y, stream);
  };
  if (sorted.dtype() == i64) return run(Type<int64_t>{});
  visit_floating("searchsorted", sorted.dtype(), run);
}

}  // namespace bs::cuda
