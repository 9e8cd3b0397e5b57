#include <bs/kernels/scan.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

#include <cub/block/block_scan.cuh>

namespace bs::cuda {

// A block takes a row, tile by tile. Where rows are too few to fill the GPU, each is cut into
// chunks, a block each: their totals are found first and scanned in turn; then each chunk starts
// from the total of those before. So the order of additions depends on the extents alone.

namespace {

using device::Raw;
using device::wide;

constexpr int threads = 256;
constexpr int64_t enough_rows = 512;  ///< not cut

/// Neighbours that a thread takes: 16 bytes of them, so that a warp's lie side by side.
template <class T>
inline constexpr int items = 16 / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int64_t tile = int64_t{items<T>} * threads;

struct Sum {
  template <class W>
  static constexpr W identity = 0;
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};
struct Product {
  template <class W>
  static constexpr W identity = 1;
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a * b;
  }
};

/// A row as the scan goes through it, from its end where `reverse`. `packed` rows begin, and end,
/// where vectors do.
struct Direction {
  int64_t n;
  bool reverse, packed;

  template <class T, int N = items<T>>
  __device__ void load(const T* row, int64_t k, wide<T> identity, wide<T> (&values)[N]) const {
    if (packed && k < n) {
      const auto raw = *reinterpret_cast<const Raw<T, N>*>(row + (reverse ? n - N - k : k));
      device::widen_pack<T, N>(raw, values);
      if (reverse) turn(values);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      values[i] = k + i < n ? device::widen(row[reverse ? n - 1 - k - i : k + i]) : identity;
  }
  template <class T, int N = items<T>>
  __device__ void store(T* row, int64_t k, wide<T> (&values)[N]) const {
    if (packed) {
      if (k >= n) return;
      if (reverse) turn(values);
      const auto out = device::narrow_pack<T, N>(values);
      *reinterpret_cast<Raw<T, N>*>(row + (reverse ? n - N - k : k)) =
          reinterpret_cast<const Raw<T, N>&>(out);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (k + i < n) row[reverse ? n - 1 - k - i : k + i] = device::narrow<T>(values[i]);
  }

 private:
  template <class W, int N>
  __device__ static void turn(W (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const W first = values[i];
      values[i] = values[N - 1 - i];
      values[N - 1 - i] = first;
    }
  }
};

/// Chunk blockIdx.x of row blockIdx.y and on: its scan to y, starting from the carries of the
/// chunks before; or, without y, its total to `totals`.
template <class T, class Op>
__global__ void __launch_bounds__(threads)
    scan_kernel(const T* x, T* y, const wide<T>* carries, wide<T>* totals, int64_t rows,
                int64_t chunk, Direction direction) {
  using W = wide<T>;
  using Scan = cub::BlockScan<W, threads>;
  constexpr int N = items<T>;
  __shared__ typename Scan::TempStorage storage;
  constexpr W identity = Op::template identity<W>;
  const Op op;
  const int64_t n = direction.n, chunks = gridDim.x;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    W running = carries && blockIdx.x > 0 ? carries[r * chunks + blockIdx.x - 1] : identity;
    const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
    for (int64_t first = begin; first < end; first += tile<T>) {
      const int64_t k = first + threadIdx.x * N;
      W values[N];
      direction.load(x + r * n, k, identity, values);
#pragma unroll
      for (int i = 1; i < N; ++i) values[i] = op(values[i - 1], values[i]);
      W before, total;
      Scan(storage).ExclusiveScan(values[N - 1], before, identity, op, total);
      if (y) {
        before = op(running, before);
#pragma unroll
        for (W& value : values) value = op(before, value);
        direction.store(y + r * n, k, values);
      }
      running = op(running, total);
      __syncthreads();  // the next scan writes to the same storage
    }
    if (totals && threadIdx.x == 0) totals[r * chunks + blockIdx.x] = running;
  }
}

template <class Op, class T>
void scan(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  const int64_t rows = x.size(0), n = x.size(1);
  const int64_t chunks = rows >= enough_rows ? 1 : ceil_div(n, tile<D>);
  const int64_t chunk = chunks == 1 ? n : tile<D>;
  const auto whole = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const bool packed = n % items<D> == 0 && whole(x.data()) && whole(y.data());
  const Direction direction{n, reverse, packed};
  const dim3 grid(static_cast<unsigned>(chunks),
                  static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
  Tensor carries;
  if (chunks > 1) {
    const Tensor totals = Tensor::empty({rows, chunks}, dtype_of<W>, x.device());
    scan_kernel<D, Op><<<grid, threads, 0, native(stream)>>>(
        pointer<T>(x), nullptr, nullptr, totals.data<W>(), rows, chunk, direction);
    carries = Tensor::empty_like(totals);
    scan<Op, W>(totals, carries, false, stream);
  }
  scan_kernel<D, Op><<<grid, threads, 0, native(stream)>>>(
      pointer<T>(x), pointer<T>(y), carries.defined() ? carries.data<W>() : nullptr, nullptr, rows,
      chunk, direction);
}

template <class F>
void visit(const char* op, DType dtype, F&& f) {
  if (dtype == i64) return f(Type<int64_t>{});
  visit_floating(op, dtype, f);
}

template <class T>
__global__ void search_kernel(const T* sorted, const T* values, int64_t* y, int64_t n, int64_t m,
                              int64_t count, bool right) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const T* row = sorted + e / m * n;
    const auto value = device::widen(values[e]);
    int64_t low = 0;
    for (int64_t high = n; low < high;) {
      const int64_t middle = (low + high) / 2;
      const auto here = device::widen(row[middle]);
      const bool below = right ? here <= value : here < value;
      (below ? low : high) = below ? middle + 1 : middle;
    }
    y[e] = low;
  }
}

}  // namespace

void cumsum(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  visit("cumsum", x.dtype(), [&]<class T>(Type<T>) { scan<Sum, T>(x, y, reverse, stream); });
  BS_CUDA_CHECK_LAUNCH("cumsum");
}

void cumprod(const Tensor& x, const Tensor& y, Stream stream) {
  visit("cumprod", x.dtype(), [&]<class T>(Type<T>) { scan<Product, T>(x, y, false, stream); });
  BS_CUDA_CHECK_LAUNCH("cumprod");
}

void searchsorted(const Tensor& sorted, const Tensor& values, const Tensor& y, bool right,
                  Stream stream) {
  visit("searchsorted", sorted.dtype(), [&]<class T>(Type<T>) {
    search_kernel<<<grid_size(y.numel(), threads, y.device()), threads, 0, native(stream)>>>(
        pointer<T>(sorted), pointer<T>(values), y.data<int64_t>(), sorted.size(1), values.size(1),
        y.numel(), right);
  });
  BS_CUDA_CHECK_LAUNCH("searchsorted");
}

}  // namespace bs::cuda
