#include <bs/kernels/scan.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

#include <cub/block/block_scan.cuh>

namespace bs::cuda {

// A row is cut into chunks, a block each. Where there are several, their totals are found first and
// scanned in turn; then each chunk starts from the total of those before. So the work is even for
// long rows, and the order of additions depends on the extents alone.

namespace {

constexpr int threads = 256;
constexpr int tiles = 8;  ///< of `threads` elements each
constexpr int64_t chunk = threads * tiles;

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

/// Chunk blockIdx.x of row blockIdx.y and on: its scan to y, starting from the carries of the
/// chunks before; or, without y, its total to `totals`.
template <class T, class Op>
__global__ void __launch_bounds__(threads)
    scan_kernel(const T* x, T* y, const device::wide<T>* carries, device::wide<T>* totals,
                int64_t rows, int64_t n, bool reverse) {
  using W = device::wide<T>;
  using Scan = cub::BlockScan<W, threads>;
  __shared__ typename Scan::TempStorage storage;
  const Op op;
  const int64_t chunks = gridDim.x;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    W running =
        carries && blockIdx.x > 0 ? carries[r * chunks + blockIdx.x - 1] : Op::template identity<W>;
    for (int tile = 0; tile < tiles; ++tile) {
      const int64_t first = blockIdx.x * chunk + tile * threads, k = first + threadIdx.x;
      if (first >= n) break;
      const int64_t i = r * n + (reverse ? n - 1 - k : k);
      W value = k < n ? device::widen(x[i]) : Op::template identity<W>;
      W total;
      Scan(storage).InclusiveScan(value, value, op, total);
      if (y && k < n) y[i] = device::narrow<T>(op(running, value));
      running = op(running, total);
      __syncthreads();  // the next scan writes to the same storage
    }
    if (totals && threadIdx.x == 0) totals[r * chunks + blockIdx.x] = running;
  }
}

template <class Op, class T>
void scan(const Tensor& x, const Tensor& y, bool reverse, Stream stream) {
  using D = device_type<T>;
  using W = device::wide<D>;
  const int64_t rows = x.size(0), n = x.size(1), chunks = ceil_div(n, chunk);
  const dim3 grid(static_cast<unsigned>(chunks),
                  static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
  Tensor carries;
  if (chunks > 1) {
    const Tensor totals = Tensor::empty({rows, chunks}, dtype_of<W>, x.device());
    scan_kernel<D, Op><<<grid, threads, 0, native(stream)>>>(pointer<T>(x), nullptr, nullptr,
                                                             totals.data<W>(), rows, n, reverse);
    carries = Tensor::empty_like(totals);
    scan<Op, W>(totals, carries, false, stream);
  }
  scan_kernel<D, Op><<<grid, threads, 0, native(stream)>>>(
      pointer<T>(x), pointer<T>(y), carries.defined() ? carries.data<W>() : nullptr, nullptr, rows,
      n, reverse);
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
