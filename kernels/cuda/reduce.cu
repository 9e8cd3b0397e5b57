#include <bs/kernels/reduce.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>

#include <limits>

namespace bs::cuda {

namespace {

using device::Pack;
using device::wide;
using device::widen;

// Every sum is taken in an order that depends on the shape and the GPU alone: blocks leave partial
// results, which a second launch combines; nothing is added atomically.

constexpr int block_threads = 256;
constexpr int warp = 32;

struct Sum {
  template <class W>
  static constexpr W identity = 0;
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};
// Where a is NaN the comparison of a with itself keeps it; where b is, the comparisons are false.
struct Max {
  template <class W>
  static constexpr W identity = std::numeric_limits<W>::has_infinity
                                    ? -std::numeric_limits<W>::infinity()
                                    : std::numeric_limits<W>::lowest();
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <class W>
  static constexpr W identity = std::numeric_limits<W>::has_infinity
                                    ? std::numeric_limits<W>::infinity()
                                    : std::numeric_limits<W>::max();
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a < b || a != a ? a : b;
  }
};

/// Terms of a sum or a choice: the elements themselves.
struct Identity {
  template <class W>
  __device__ W operator()(W x, int64_t) const {
    return x;
  }
};
/// (x - mean)^2, one mean a result.
template <class W>
struct SquaredDeviation {
  const W* mean;
  __device__ W operator()(W x, int64_t result) const {
    return (x - mean[result]) * (x - mean[result]);
  }
};

/// Neighbours loaded at once.
template <class T>
constexpr int pack = device::pack_size<T>;

/// Part blockIdx.y, of `length` elements, of rows of n; blockDim.x threads a row, blockDim.y rows a
/// block, of which there is one unless a warp does for a row. Packs are used where `packed` says
/// that rows and parts begin on their boundaries.
template <class Op, class T, class Term>
__global__ void __launch_bounds__(block_threads)
    rows_kernel(const T* x, int64_t rows, int64_t n, int64_t length, bool packed, Term term,
                wide<T>* y, wide<T> scale) {
  using W = wide<T>;
  constexpr int N = pack<T>;
  const Op op;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int64_t begin = blockIdx.y * length;
  const int64_t count = n - begin < length ? n - begin : length;
  const T* from = x + row * n + begin;
  W total = Op::template identity<W>;
  const int64_t packs = packed ? count / N : 0;
  for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    const auto in = reinterpret_cast<const Pack<T, N>*>(from)[i];
#pragma unroll
    for (int k = 0; k < N; ++k) total = op(total, term(widen(in.at[k]), row));
  }
  for (int64_t i = packs * N + threadIdx.x; i < count; i += blockDim.x)
    total = op(total, term(widen(from[i]), row));
  total = blockDim.x == warp ? device::warp_reduce(total, op)
                             : device::block_reduce(total, op, Op::template identity<W>);
  if (threadIdx.x == 0) y[row * gridDim.y + blockIdx.y] = scale * total;
}

/// Part blockIdx.y, of `length` rows, of matrices [n, inner]; blockDim.x threads take N
/// neighbouring columns each, blockDim.y threads share the rows.
template <class Op, int N, class T, class Term>
__global__ void __launch_bounds__(block_threads)
    columns_kernel(const T* x, int64_t n, int64_t inner, int64_t length, int64_t groups, Term term,
                   wide<T>* y, wide<T> scale) {
  using W = wide<T>;
  const Op op;
  __shared__ W shared[block_threads * N];
  const int64_t matrix = blockIdx.x / groups;
  const int64_t column = (blockIdx.x % groups * blockDim.x + threadIdx.x) * N;
  const int64_t begin = blockIdx.y * length;
  const int64_t end = n - begin < length ? n : begin + length;
  W total[N];
#pragma unroll
  for (int k = 0; k < N; ++k) total[k] = Op::template identity<W>;
  if (column < inner) {
    const T* from = x + matrix * n * inner + column;
#pragma unroll 4
    for (int64_t r = begin + threadIdx.y; r < end; r += blockDim.y) {
      const auto in = *reinterpret_cast<const Pack<T, N>*>(from + r * inner);
#pragma unroll
      for (int k = 0; k < N; ++k)
        total[k] = op(total[k], term(widen(in.at[k]), matrix * inner + column + k));
    }
  }
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int k = 0; k < N; ++k) shared[k * block_threads + thread] = total[k];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        W* at = shared + k * block_threads + thread;
        *at = op(*at, at[half * blockDim.x]);
      }
    }
  }
  if (threadIdx.y > 0 || column >= inner) return;
#pragma unroll
  for (int k = 0; k < N; ++k)
    y[(matrix * gridDim.y + blockIdx.y) * inner + column + k] =
        scale * shared[k * block_threads + thread];
}

/// Blocks that keep the GPU busy.
int64_t wanted_blocks(Device device) {
  return int64_t{device_properties(device).multiprocessors} * 8;
}

/// How many parts to cut `n` into, of at least `least` each, so that `blocks` blocks become enough;
/// parts are multiples of 16. Returns the length of a part.
int64_t part_length(int64_t n, int64_t blocks, int64_t least, Device device) {
  constexpr int64_t most_parts = 65535;  // of the grid's second axis
  const int64_t parts = std::clamp<int64_t>(ceil_div(wanted_blocks(device), blocks), 1,
                                            std::min(most_parts, std::max<int64_t>(1, n / least)));
  return ceil_div(ceil_div(n, parts), 16) * 16;
}

template <class Op, class T, class Term>
void reduce_rows(const T* x, int64_t rows, int64_t n, Term term, wide<T>* y, wide<T> scale,
                 Device device, Stream stream) {
  using W = wide<T>;
  const bool by_warp = n <= 1024;
  const dim3 block = by_warp ? dim3(warp, block_threads / warp) : dim3(block_threads);
  const int64_t blocks = ceil_div(rows, block.y);
  const int64_t length = by_warp ? n : part_length(n, blocks, 16 * block_threads, device);
  const int64_t parts = ceil_div(n, length);
  const bool packed =
      reinterpret_cast<uintptr_t>(x) % sizeof(Pack<T, pack<T>>) == 0 && n % pack<T> == 0;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(parts));
  if (parts == 1) {
    rows_kernel<Op><<<grid, block, 0, native(stream)>>>(x, rows, n, length, packed, term, y, scale);
    return;
  }
  const Tensor partial = Tensor::empty({rows, parts}, dtype_of<W>, device);
  W* const middle = partial.data<W>();
  rows_kernel<Op>
      <<<grid, block, 0, native(stream)>>>(x, rows, n, length, packed, term, middle, W(1));
  reduce_rows<Op>(static_cast<const W*>(middle), rows, parts, Identity{}, y, scale, device, stream);
}

template <class Op, int N, class T, class Term>
void reduce_columns(const T* x, int64_t outer, int64_t n, int64_t inner, Term term, wide<T>* y,
                    wide<T> scale, Device device, Stream stream) {
  using W = wide<T>;
  unsigned width = 1;
  while (width < warp && width * N < inner) width *= 2;
  const dim3 block(width, block_threads / width);
  const int64_t groups = ceil_div(inner, int64_t{width} * N);
  const int64_t length = part_length(n, outer * groups, 4 * int64_t{block.y}, device);
  const int64_t parts = ceil_div(n, length);
  const dim3 grid(static_cast<unsigned>(outer * groups), static_cast<unsigned>(parts));
  if (parts == 1) {
    columns_kernel<Op, N>
        <<<grid, block, 0, native(stream)>>>(x, n, inner, length, groups, term, y, scale);
    return;
  }
  const Tensor partial = Tensor::empty({outer, parts, inner}, dtype_of<W>, device);
  W* const middle = partial.data<W>();
  columns_kernel<Op, N>
      <<<grid, block, 0, native(stream)>>>(x, n, inner, length, groups, term, middle, W(1));
  reduce_columns<Op, 1>(static_cast<const W*>(middle), outer, parts, inner, Identity{}, y, scale,
                        device, stream);
}

template <class Op, class T, class Term>
void reduce(const char* op, const Tensor& x, Term term, const Tensor& y, double scale_,
            Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  const int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const D* const from = pointer<T>(x);
  W* const to = y.data<W>();
  const auto scale = static_cast<W>(scale_);
  if (inner == 1) {
    reduce_rows<Op>(from, outer, n, term, to, scale, x.device(), stream);
  } else if (reinterpret_cast<uintptr_t>(from) % 16 == 0 && inner % pack<D> == 0) {
    reduce_columns<Op, pack<D>>(from, outer, n, inner, term, to, scale, x.device(), stream);
  } else {
    reduce_columns<Op, 1>(from, outer, n, inner, term, to, scale, x.device(), stream);
  }
  BS_CUDA_CHECK_LAUNCH(op);
}

/// Calls f(Type<T>{}) with the type of x, a floating one or i64.
template <class F>
void visit_terms(const char* op, DType dtype, F f) {
  if (dtype == i64) return f(Type<int64_t>{});
  visit_floating(op, dtype, f);
}

/// Whether (value, index) goes before the best so far: larger, or as large and earlier. NaN is the
/// largest.
template <class W>
__device__ bool goes_before(W value, int64_t index, W best, int64_t best_index) {
  const bool is_nan = value != value;
  const bool best_is_nan = best != best;
  if (is_nan != best_is_nan) return is_nan;
  if (!is_nan && value != best) return value > best;
  return index < best_index;
}

/// One block a result.
template <class T>
__global__ void __launch_bounds__(block_threads)
    argmax_kernel(const T* x, int64_t n, int64_t inner, int64_t* y) {
  using W = wide<T>;
  __shared__ W values[block_threads];
  __shared__ int64_t indices[block_threads];
  const int64_t result = blockIdx.x;
  const T* from = x + result / inner * n * inner + result % inner;
  // A thread without elements repeats the first, which changes nothing.
  W best = widen(from[0]);
  int64_t at = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const W value = widen(from[i * inner]);
    if (goes_before(value, i, best, at)) {
      best = value;
      at = i;
    }
  }
  values[threadIdx.x] = best;
  indices[threadIdx.x] = at;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    const unsigned other = threadIdx.x + half;
    if (threadIdx.x < half &&
        goes_before(values[other], indices[other], values[threadIdx.x], indices[threadIdx.x])) {
      values[threadIdx.x] = values[other];
      indices[threadIdx.x] = indices[other];
    }
  }
  if (threadIdx.x == 0) y[result] = indices[0];
}

}  // namespace

void sum(const Tensor& x, const Tensor& y, double scale, Stream stream) {
  visit_terms("sum", x.dtype(),
              [&]<class T>(Type<T>) { reduce<Sum, T>("sum", x, Identity{}, y, scale, stream); });
}

void squared_deviation(const Tensor& x, const Tensor& mean, const Tensor& y, double scale,
                       Stream stream) {
  visit_floating("var", x.dtype(), [&]<class T>(Type<T>) {
    using W = wide<device_type<T>>;
    reduce<Sum, T>("var", x, SquaredDeviation<W>{mean.data<W>()}, y, scale, stream);
  });
}

void amax(const Tensor& x, const Tensor& y, Stream stream) {
  visit_terms("amax", x.dtype(),
              [&]<class T>(Type<T>) { reduce<Max, T>("amax", x, Identity{}, y, 1, stream); });
}

void amin(const Tensor& x, const Tensor& y, Stream stream) {
  visit_terms("amin", x.dtype(),
              [&]<class T>(Type<T>) { reduce<Min, T>("amin", x, Identity{}, y, 1, stream); });
}

void argmax(const Tensor& x, const Tensor& y, Stream stream) {
  const int64_t n = x.size(1);
  const int threads = n <= block_threads ? warp : block_threads;
  visit_terms("argmax", x.dtype(), [&]<class T>(Type<T>) {
    argmax_kernel<<<static_cast<unsigned>(y.numel()), threads, 0, native(stream)>>>(
        pointer<T>(x), n, x.size(2), y.data<int64_t>());
  });
  BS_CUDA_CHECK_LAUNCH("argmax");
}

}  // namespace bs::cuda
