#pragma once
// Rows of the last axis on the threads of a warp or of a block, in loads of 16 bytes where rows
// allow it.
#include <bs/lib/cuda/launch.h>
#include <bs/lib/tensor.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>

#include <bit>
#include <cmath>

namespace bs::cuda {

/// Threads of a block that works on rows, at most.
inline constexpr int most_row_threads = 512;

/// Threads of a row and rows of a block: a warp, of which four share a block, or a block. Threads
/// hold `held` packs of N elements, fewer where there are too few rows to keep the GPU busy. Rows
/// that do not fit into the registers of a block get no threads.
inline dim3 row_block(int64_t rows, int64_t n, int N, int held, Device device) {
  constexpr int busy = 1024;  // threads that keep a multiprocessor so
  const int64_t wanted = int64_t{device_properties(device).multiprocessors} * busy;
  int64_t threads = 32;
  while (threads < most_row_threads &&
         (threads * held * N < n || (threads * rows < wanted && threads * N < n)))
    threads *= 2;
  if (threads * held * N < n) return dim3(0);
  return dim3(static_cast<unsigned>(threads), threads == 32 ? 4 : 1);
}

/// Whether every tensor given starts where 16 bytes may be loaded at once; undefined ones do.
template <class... Tensors>
bool aligned16(const Tensors&... tensors) {
  const auto one = [](const Tensor& t) {
    return !t.defined() || reinterpret_cast<uintptr_t>(t.data()) % 16 == 0;
  };
  return (one(tensors) && ...);
}

/// Calls f(std::integral_constant<int, N>) with the elements of a pack: those of 16 bytes where
/// tensors are aligned and rows of n elements keep them so, else one.
template <class T, class F>
void visit_pack(bool aligned, int64_t n, F&& f) {
  constexpr int most = device::pack_size<T>;
  if (aligned && n % most == 0) {
    f(std::integral_constant<int, most>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

/// Pointer to the elements; null for an undefined tensor.
template <class T>
device_type<T>* maybe(const Tensor& t) {
  return t.defined() ? pointer<T>(t) : nullptr;
}

/// Reduces over the threads of a row, which are a power of two of a warp's lanes, or all of the
/// block. Every lane of the warp takes part.
template <class W, class Op>
__device__ W row_reduce(W value, Op op, W identity) {
  if (blockDim.x > 32) return device::block_reduce(value, op, identity);
  if (blockDim.x == 32) return device::warp_reduce(value, op);
  for (unsigned offset = blockDim.x / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

template <class W>
__device__ W row_sum(W value) {
  return row_reduce(value, device::Sum{}, W(0));
}

/// Two numbers that are summed together.
template <class W>
struct Two {
  W a, b;
  __device__ friend Two operator+(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }
};
template <class W>
__device__ Two<W> row_sum(Two<W> value) {
  constexpr unsigned all = 0xffffffffU;
  const auto within_warp = [](Two<W> v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      v = v + Two<W>{__shfl_xor_sync(all, v.a, offset), __shfl_xor_sync(all, v.b, offset)};
    return v;
  };
  value = within_warp(value);
  if (blockDim.x == 32) return value;
  __shared__ W partial[2][32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // an earlier call may still be reading `partial`
  if (lane == 0) {
    partial[0][warp] = value.a;
    partial[1][warp] = value.b;
  }
  __syncthreads();
  const bool has = lane < blockDim.x / 32;
  return within_warp({has ? partial[0][lane] : W(0), has ? partial[1][lane] : W(0)});
}

/// The same over the lanes of a row that shares its warp.
template <class W>
__device__ Two<W> lanes_sum(Two<W> value) {
  for (unsigned offset = blockDim.x / 2; offset > 0; offset /= 2)
    value = value + Two<W>{__shfl_xor_sync(0xffffffffU, value.a, offset),
                           __shfl_xor_sync(0xffffffffU, value.b, offset)};
  return value;
}

/// Whether means of rows are rounded so coarsely beside distances of elements that they need a
/// correction. Sums of thousands of equal elements of 16 bits are exact in f32, and others are far
/// apart beside it.
template <class T>
inline constexpr bool corrects_mean = sizeof(T) > 2;

template <class W>
struct RowMoments {
  W mean, squares;
};

/// The mean and the sum of squared deviations of a row of n elements, of whose deviations from
/// `mean`, which is rounded, a thread has the sum and that of the squares. The sum tells how far
/// off the mean is (Chan, Golub, LeVeque, 1983).
template <class W>
__device__ RowMoments<W> corrected_moments(W mean, W deviations, W squares, int64_t n) {
  const Two<W> mine{deviations, squares};
  const Two<W> all = blockDim.x < 32 ? lanes_sum(mine) : row_sum(mine);
  const W off = all.a / n, less = all.b - off * all.a;
  if (!(all.b < W(INFINITY))) return {mean, all.b};
  return {mean + off, less > 0 ? less : W(0)};
}

/// A row of n elements in the registers of its threads, `most` packs of N in each.
template <class T_, int N_, int most>
struct HeldRow {
  using T = T_;
  static constexpr int N = N_;
  static constexpr bool is_held = true;
  static constexpr int elements = most * N;  ///< of a thread
  using W = device::wide<T>;
  using Raw = device::Raw<T, N>;

  Raw packs[most];

  __device__ void load(const T* row, int64_t n) {
#pragma unroll
    for (int k = 0; k < most; ++k) {
      const unsigned p = threadIdx.x + k * blockDim.x;
      packs[k] = Raw{};
      if (p < n / N) packs[k] = reinterpret_cast<const Raw*>(row)[p];
    }
  }
  __device__ void get(int k, unsigned, W (&values)[N]) const {
    device::widen_pack<T, N>(packs[k], values);
  }
  __device__ void set(int k, const W (&values)[N]) {
    const auto pack = device::narrow_pack<T, N>(values);
    packs[k] = reinterpret_cast<const Raw&>(pack);
  }
  /// Calls f(k, pack number) for this thread's packs, in the same order for every row.
  template <class F>
  static __device__ void for_each_pack(int64_t n, F&& f) {
#pragma unroll
    for (int k = 0; k < most; ++k) {
      const unsigned p = threadIdx.x + k * blockDim.x;
      if (p < n / N) f(k, p);
    }
  }
};

/// A row of any length, left in memory and read again each time.
template <class T_, int N_>
struct LongRow {
  using T = T_;
  static constexpr int N = N_;
  static constexpr bool is_held = false;
  static constexpr int elements = 1;
  using W = device::wide<T>;
  using Raw = device::Raw<T, N>;

  const Raw* packs;

  __device__ void load(const T* row, int64_t) { packs = reinterpret_cast<const Raw*>(row); }
  __device__ void get(int, unsigned p, W (&values)[N]) const {
    device::widen_pack<T, N>(packs[p], values);
  }
  __device__ void set(int, const W (&)[N]) {}
  template <class F>
  static __device__ void for_each_pack(int64_t n, F&& f) {
    for (unsigned p = threadIdx.x; p < n / N; p += blockDim.x) f(0, p);
  }
};

/// The pack of a vector that stands over pack p of a row; `absent` where there is no vector.
template <int N, class T>
__device__ void get_over(const T* vector, unsigned p, device::wide<T> absent,
                         device::wide<T> (&values)[N]) {
  if (vector)
    return device::widen_pack<T, N>(reinterpret_cast<const device::Raw<T, N>*>(vector)[p], values);
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = absent;
}

template <int N, class T>
__device__ void store_pack(T* row, unsigned p, const device::wide<T> (&values)[N]) {
  reinterpret_cast<device::Pack<T, N>*>(row)[p] = device::narrow_pack<T, N>(values);
}

/// The same at any place where packs begin.
template <int N, class T>
__device__ void store_pack(T* to, const device::wide<T> (&values)[N]) {
  *reinterpret_cast<device::Pack<T, N>*>(to) = device::narrow_pack<T, N>(values);
}

/// Calls f(Type<Row>, block) with the kind of row for rows of n elements of T and the threads for
/// it: held in vectors where the tensors are aligned and n is a multiple, held one by one, or long.
/// Threads hold `held_bytes` of a row at most.
template <class T, int held_bytes, class F>
void visit_row(bool aligned, int64_t rows, int64_t n, Device device, F&& f) {
  using D = device_type<T>;
  visit_pack<T>(aligned, n, [&]<int N>(std::integral_constant<int, N>) {
    constexpr int held = held_bytes / static_cast<int>(sizeof(T)) / std::max(N, 2);
    const dim3 block = row_block(rows, n, N, held, device);
    if (block.x > 0) {
      f(Type<HeldRow<D, N, held>>{}, block);
    } else {
      f(Type<LongRow<D, N>>{}, dim3(most_row_threads));
    }
  });
}

/// Lanes of a warp for a row of so many packs: as few as hold it with `held` packs each, more where
/// rows are too few to keep the GPU busy, and 32 for rows that do not fit.
inline unsigned lanes_of_row(int64_t rows, int64_t packs, int held, Device device) {
  constexpr int64_t busy = 1024;  // threads that keep a multiprocessor so
  const int64_t wanted = busy * device_properties(device).multiprocessors;
  unsigned lanes = 1;
  while (lanes < 32 && (lanes * held < packs || (rows * lanes < wanted && lanes < packs)))
    lanes *= 2;
  return lanes;
}

/// Calls f(Type<Row>, block) for rows so short that they share warps, and says whether they are. A
/// block has as many rows as make 128 threads, so the last block may have rows that are none.
template <class T, class F>
bool visit_rows_of_lanes(bool aligned, int64_t rows, int64_t n, Device device, F&& f) {
  bool done = false;
  visit_pack<T>(aligned, n, [&]<int N>(std::integral_constant<int, N>) {
    constexpr int held = 4;
    const int64_t packs = n / N;
    const unsigned lanes = lanes_of_row(rows, packs, held, device);
    done = packs <= int64_t{lanes} * held && (lanes < 32 || N == 1);
    if (done) f(Type<HeldRow<device_type<T>, N, held>>{}, dim3(lanes, 128 / lanes));
  });
  return done;
}

/// Calls f(Type<Row>, block) for rows of so few packs that half a warp holds them, a pack a lane,
/// and says whether they are; otherwise as above.
template <class T, class F>
bool visit_rows_of_packs(bool aligned, int64_t n, F&& f) {
  bool done = false;
  visit_pack<T>(aligned, n, [&]<int N>(std::integral_constant<int, N>) {
    const auto packs = static_cast<uint64_t>(n / N);
    done = packs <= 16;
    if (!done) return;
    const auto lanes = static_cast<unsigned>(std::bit_ceil(packs));
    f(Type<HeldRow<device_type<T>, N, 1>>{}, dim3(lanes, 128 / lanes));
  });
  return done;
}

/// Calls f(Type<Row>, block) as visit_row does, but short rows share warps.
template <class T, int held_bytes, class F>
void visit_shared_row(bool aligned, int64_t rows, int64_t n, Device device, F&& f) {
  if (!visit_rows_of_lanes<T>(aligned, rows, n, device, f))
    visit_row<T, held_bytes>(aligned, rows, n, device, std::forward<F>(f));
}

/// Calls f(Type<Row>, block) as visit_row does, but short rows of 16 bits are held in just the
/// vectors that a warp needs, where there are rows enough for as many warps: others cost registers,
/// and instructions that skip them.
template <class T, int held_bytes, class F>
void visit_short_row(bool aligned, int64_t rows, int64_t n, Device device, F&& f) {
  if constexpr (sizeof(T) == 2) {
    using D = device_type<T>;
    constexpr int N = device::pack_size<D>, busy_rows = 32;  // of a multiprocessor
    const int64_t packs = ceil_div(n, 32 * N);
    const bool many = rows >= int64_t{busy_rows} * device_properties(device).multiprocessors;
    if (aligned && n % N == 0 && many && packs <= 3) {
      const dim3 block(32, 4);
      if (packs == 1) return f(Type<HeldRow<D, N, 1>>{}, block);
      if (packs == 2) return f(Type<HeldRow<D, N, 2>>{}, block);
      return f(Type<HeldRow<D, N, 3>>{}, block);
    }
  }
  visit_row<T, held_bytes>(aligned, rows, n, device, std::forward<F>(f));
}

}  // namespace bs::cuda
