#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/index/gather_places.cuh>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <cstring>
#include <limits>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

template <class U>
__global__ void gather_kernel(const U* x, Places places, U* y, U absent, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const int64_t at = places(e);
    y[e] = at < 0 ? absent : x[at];
  }
}

constexpr int ahead = 4;  ///< elements whose loads a thread has on their way

/// The same where [m, inner] are many, but fewer than 2^31: an o each blockIdx.y, no division of 64
/// bits, and none at all for an inner of 1.
template <class U, bool rows>
__global__ void __launch_bounds__(threads)
    gather_lines_kernel(const U* x, Places places, Divisor inner, U* y, U absent, int64_t outer) {
  const auto line = static_cast<uint32_t>(places.m * places.inner);
  const uint32_t first = blockIdx.x * (threads * ahead) + threadIdx.x;
  for (int64_t o = blockIdx.y; o < outer; o += gridDim.y) {
    const U* from = x + o * places.n * places.inner;
    U* to = y + o * line;
    int64_t at[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      const uint32_t e = first + u * threads;
      if (e >= line) continue;
      const uint32_t k = rows ? e : inner.divide(e), i = e - k * (rows ? 1 : inner.number);
      const int64_t index =
          places.index[o * places.outer_stride + k * places.stride + i * places.inner_stride];
      at[u] = index >= 0 && index < places.n ? index * places.inner + i : -1;
    }
    U value[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (first + u * threads < line) value[u] = at[u] < 0 ? absent : from[at[u]];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (first + u * threads < line) to[first + u * threads] = value[u];
  }
}

/// Whether a block each does the rows of x that rows of m stand beside: `bytes` for one are in
/// shared memory.
bool holds_rows(const Tensor& x, int64_t m, int64_t bytes) {
  constexpr int64_t enough_rows = 32, most_bytes = 48 << 10, longest = 1 << 30;
  return x.size(2) == 1 && x.size(0) >= enough_rows && m >= threads / 2 && m <= longest &&
         bytes <= most_bytes;
}

/// Brings a row to shared memory, N elements at a time.
template <class U, int N>
__device__ void hold(const U* row, int count, U* held) {
  using Pack = device::Pack<U, N>;
#pragma unroll 4
  for (int p = static_cast<int>(threadIdx.x); p < count / N; p += threads)
    reinterpret_cast<Pack*>(held)[p] = reinterpret_cast<const Pack*>(row)[p];
}

/// Calls f(k, index) for the thread's share of a row's indices, -1 where one is outside.
template <class F>
__device__ void for_each_index(const Places& places, int64_t row, F&& f) {
  const auto m = static_cast<int>(places.m);
  for (int first = static_cast<int>(threadIdx.x); first < m; first += threads * ahead) {
    int64_t at[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (const int k = first + u * threads; k < m)
        at[u] = places.index[row * places.outer_stride + k * places.stride];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (const int k = first + u * threads; k < m)
        f(k, at[u] >= 0 && at[u] < places.n ? static_cast<int>(at[u]) : -1);
  }
}

/// Gathers a row a block, which holds that of x.
template <class U, int N>
__global__ void __launch_bounds__(threads)
    gather_rows_kernel(const U* x, Places places, U* y, U absent) {
  extern __shared__ uint4 memory[];
  auto* const held = reinterpret_cast<U*>(memory);
  const int64_t row = blockIdx.x;
  hold<U, N>(x + row * places.n, static_cast<int>(places.n), held);
  __syncthreads();
  for_each_index(places, row,
                 [&](int k, int at) { y[row * places.m + k] = at < 0 ? absent : held[at]; });
}

/// winner[place] = the last k that names it.
__global__ void win_kernel(Places places, int* winner, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const int64_t at = places(e);
    if (at >= 0) atomicMax(winner + at, static_cast<int>(e / places.inner % places.m));
  }
}

/// Of an m of 0 source is one number.
template <class U>
__global__ void write_kernel(const U* source, const int* winner, U* y, int64_t n, int64_t m,
                             int64_t inner, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < count; at += step)
    if (winner[at] >= 0)
      y[at] = source[m == 0 ? 0 : (at / inner / n * m + winner[at]) * inner + at % inner];
}

/// Rows of n that are written to, and rows of m that are: one of each in shared memory.
template <class U>
struct ScatteredRows {
  const U *x, *source;  ///< x is null for zeros
  U* y;
  int64_t n, m;
  bool number;  ///< whether source is one

  /// Where the winners begin behind the sources.
  __host__ __device__ int64_t offset() const {
    return number ? 0 : (m * static_cast<int64_t>(sizeof(U)) + 15) / 16 * 16;
  }
  int64_t bytes() const { return offset() + n * static_cast<int64_t>(sizeof(int)); }
};

/// Scatters a row a block; elements are moved N at a time.
template <class U, int N>
__global__ void __launch_bounds__(threads)
    scatter_rows_kernel(ScatteredRows<U> rows, Places places) {
  using Pack = device::Pack<U, N>;
  extern __shared__ uint4 memory[];
  auto* const sources = reinterpret_cast<U*>(memory);
  auto* const winners = reinterpret_cast<int*>(reinterpret_cast<char*>(memory) + rows.offset());
  const auto n = static_cast<int>(rows.n), m = static_cast<int>(rows.m);
  const int64_t row = blockIdx.x;
  const U number = rows.number ? *rows.source : U(0);
  if (!rows.number) hold<U, N>(rows.source + row * m, m, sources);
  for (int j = static_cast<int>(threadIdx.x); j < n; j += threads) winners[j] = -1;
  __syncthreads();
  for_each_index(places, row, [&](int k, int at) {
    if (at >= 0) atomicMax(winners + at, k);
  });
  __syncthreads();
  const auto* const x = rows.x ? reinterpret_cast<const Pack*>(rows.x + row * n) : nullptr;
  auto* const y = reinterpret_cast<Pack*>(rows.y + row * n);
#pragma unroll 2
  for (int p = static_cast<int>(threadIdx.x); p < n / N; p += threads) {
    Pack pack = x ? x[p] : Pack{};
    const auto winner = reinterpret_cast<const device::Pack<int, N>*>(winners)[p];
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (winner.at[i] >= 0) pack.at[i] = rows.number ? number : sources[winner.at[i]];
    y[p] = pack;
  }
}

/// The bits of what stands for a missing element: NaN, 0 for integers.
uint64_t absent_bits(DType dtype) {
  uint64_t bits = 0;
  const auto put = [&](auto value) { std::memcpy(&bits, &value, sizeof value); };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  if (dtype == f16) put(half(nan));
  if (dtype == bf16) put(bfloat16(nan));
  if (dtype == f32) put(nan);
  if (dtype == f64) put(static_cast<double>(nan));
  return bits;
}

}  // namespace

void gather(const Tensor& x, const Tensor& index, const Tensor& y, Stream stream) {
  const int64_t count = y.numel(), line = y.size(1) * y.size(2);
  const Places at = places(index, x.size(1));
  detail::visit_bits(x.dtype(), [&]<class U>(Type<U>) {
    const U* from = static_cast<const U*>(x.data());
    U* to = static_cast<U*>(y.data());
    const auto absent = static_cast<U>(absent_bits(x.dtype()));
    const int64_t row_bytes = at.n * static_cast<int64_t>(sizeof(U));
    constexpr int64_t sector = 32;  // what an element alone would move
    if (holds_rows(x, at.m, row_bytes) && row_bytes <= at.m * sector) {
      visit_pack<U>(aligned16(x), at.n, [&]<int N>(std::integral_constant<int, N>) {
        gather_rows_kernel<U, N>
            <<<grid_of("gather", x.size(0)), threads, static_cast<size_t>(row_bytes),
               native(stream)>>>(from, at, to, absent);
      });
      return;
    }
    if (line < threads || line > std::numeric_limits<int32_t>::max() - threads * ahead) {
      gather_kernel<<<grid_size(count, threads, x.device()), threads, 0, native(stream)>>>(
          from, at, to, absent, count);
      return;
    }
    const dim3 grid(static_cast<unsigned>(ceil_div(line, threads * ahead)),
                    static_cast<unsigned>(std::min<int64_t>(y.size(0), 65535)));
    const auto kernel =
        at.inner == 1 ? gather_lines_kernel<U, true> : gather_lines_kernel<U, false>;
    kernel<<<grid, threads, 0, native(stream)>>>(from, at, Divisor(at.inner), to, absent,
                                                 y.size(0));
  });
  BS_CUDA_CHECK_LAUNCH("gather");
}

namespace {

/// Of a place the last that names it, found in memory; then that is written.
template <class U>
void scatter_places(const Places& at, const Tensor& source, bool number, const Tensor& y,
                    Stream stream) {
  const int64_t count = source.numel(), all = y.numel();
  const Tensor winner = Tensor::empty({all}, i32, y.device());
  fill(winner, -1, stream);
  win_kernel<<<grid_size(count, threads, y.device()), threads, 0, native(stream)>>>(
      at, winner.data<int32_t>(), count);
  write_kernel<<<grid_size(all, threads, y.device()), threads, 0, native(stream)>>>(
      static_cast<const U*>(source.data()), winner.data<int32_t>(), static_cast<U*>(y.data()),
      y.size(1), number ? 0 : source.size(1), y.size(2), all);
}

/// Whether one number is seen everywhere.
bool is_number(const Tensor& source) {
  bool one = true;
  for (int axis = 0; axis < source.rank(); ++axis)
    one = one && (source.size(axis) == 1 || source.strides()[axis] == 0);
  return one;
}

}  // namespace

void scatter(const Tensor& x, const Tensor& index, const Tensor& source, const Tensor& y,
             Stream stream) {
  BS_CHECK(source.size(1) < std::numeric_limits<int>::max(), "scatter: {} indices are too many",
           source.size(1));
  const Places at = places(index, y.size(1));
  const bool number = is_number(source);
  detail::visit_bits(y.dtype(), [&]<class U>(Type<U>) {
    const ScatteredRows<U> rows{x.defined() ? static_cast<const U*>(x.data()) : nullptr,
                                static_cast<const U*>(source.data()),
                                static_cast<U*>(y.data()),
                                y.size(1),
                                source.size(1),
                                number};
    if (!holds_rows(y, rows.m, rows.bytes())) {
      if (!x.defined()) {
        fill(y, 0, stream);
      } else if (x.data() != y.data()) {
        copy(x, y, stream);
      }
      return scatter_places<U>(at, source, number, y, stream);
    }
    const int64_t both = rows.n | rows.m;  // a power of two divides it where it divides both
    visit_pack<U>(aligned16(x, y) && (number || aligned16(source)), both,
                  [&]<int N>(std::integral_constant<int, N>) {
                    scatter_rows_kernel<U, N>
                        <<<grid_of("scatter", y.size(0)), threads,
                           static_cast<size_t>(rows.bytes()), native(stream)>>>(rows, at);
                  });
  });
  BS_CUDA_CHECK_LAUNCH("scatter");
}

namespace {

/// winner[row] = the last k whose index is the row.
__global__ void win_row_kernel(Integers indices, int* winner, int64_t rows, int count) {
  const int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (k >= count) return;
  const int64_t row = indices[k];
  if (row >= 0 && row < rows) atomicMax(winner + row, k);
}

/// Rows of `width` units, 16 bytes or an element: those of x [outer, n], or their winners in
/// source [outer, m].
template <class Unit>
struct CopiedRows {
  const Unit *x, *source;
  const int* winner;
  Unit* y;
  int64_t outer, n, m, width;
};

/// Copies a row a threadIdx.y, an o each blockIdx.y.
template <class Unit>
__global__ void __launch_bounds__(threads) copy_rows_kernel(CopiedRows<Unit> rows) {
  const int64_t n = rows.n, width = rows.width;
  for (int64_t o = blockIdx.y; o < rows.outer; o += gridDim.y)
    for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < n;
         r += int64_t{gridDim.x} * blockDim.y) {
      const int winner = rows.winner[r];
      const Unit* const from =
          winner < 0 ? rows.x + (o * n + r) * width : rows.source + (o * rows.m + winner) * width;
      Unit* const to = rows.y + (o * n + r) * width;
      for (int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
    }
}

template <class Unit>
void copy_rows(const Tensor& x, const Tensor& winner, const Tensor& source, const Tensor& y,
               Stream stream) {
  const int64_t width =
      y.size(2) * static_cast<int64_t>(size_of(y.dtype())) / static_cast<int64_t>(sizeof(Unit));
  const CopiedRows<Unit> rows{static_cast<const Unit*>(x.data()),
                              static_cast<const Unit*>(source.data()),
                              winner.data<int32_t>(),
                              static_cast<Unit*>(y.data()),
                              y.size(0),
                              y.size(1),
                              source.size(1),
                              width};
  unsigned across = 1;
  while (across < threads && across < width) across *= 2;
  const dim3 block(across, threads / across);
  const dim3 grid(grid_size(rows.n, static_cast<int>(block.y), y.device()),
                  static_cast<unsigned>(std::min<int64_t>(rows.outer, 65535)));
  copy_rows_kernel<<<grid, block, 0, native(stream)>>>(rows);
  BS_CUDA_CHECK_LAUNCH("index_copy");
}

}  // namespace

void index_copy(const Tensor& x, const Tensor& indices, const Tensor& source, const Tensor& y,
                Stream stream) {
  const int64_t count = indices.numel();
  const int64_t row_bytes = y.size(2) * static_cast<int64_t>(size_of(y.dtype()));
  constexpr int64_t short_row = 64;  // of which single elements are found as fast
  if (row_bytes < short_row)
    return scatter(x, indices.view({1, count, 1}).expand(source.shape()), source, y, stream);
  BS_CHECK(count < std::numeric_limits<int>::max(), "index_copy: {} indices are too many", count);
  const Tensor winner = Tensor::empty({y.size(1)}, i32, y.device());
  fill(winner, -1, stream);
  win_row_kernel<<<grid_of("index_copy", ceil_div(count, threads)), threads, 0, native(stream)>>>(
      integers(indices), winner.data<int32_t>(), y.size(1), static_cast<int>(count));
  BS_CUDA_CHECK_LAUNCH("index_copy");
  if (aligned16(x, source, y) && row_bytes % 16 == 0)
    return copy_rows<uint4>(x, winner, source, y, stream);
  detail::visit_bits(y.dtype(),
                     [&]<class U>(Type<U>) { copy_rows<U>(x, winner, source, y, stream); });
}

}  // namespace bs::cuda
