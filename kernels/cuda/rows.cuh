#pragma once
// Rows of the last axis on the threads of a warp or of a block, in loads of 16 bytes where rows
// allow it.
#include <bs/lib/cuda/launch.h>
#include <bs/lib/tensor.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>

namespace bs::cuda {

/// Threads of a block that works on rows, at most.
inline constexpr int most_row_threads = 512;

/// Packs of N elements that a thread keeps of a row: what fits into registers beside their sums.
template <class T, int N>
inline constexpr int held = (sizeof(T) == 8 ? 8 : 16) / N;

/// Threads of a row and rows of a block: a warp, of which four share a block, or a block. Rows that
/// do not fit into the registers of a block get no threads.
template <class T, int N>
dim3 row_block(int64_t n) {
  unsigned threads = 32;
  while (threads < most_row_threads && threads * held<T, N> * N < n) threads *= 2;
  if (threads * held<T, N> * N < n) return dim3(0);
  return dim3(threads, threads == 32 ? 4 : 1);
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

/// Reduces over the threads of a row, which are a warp or all of the block.
template <class W, class Op>
__device__ W row_reduce(W value, Op op, W identity) {
  return blockDim.x == 32 ? device::warp_reduce(value, op)
                          : device::block_reduce(value, op, identity);
}

template <class W>
__device__ W row_sum(W value) {
  return row_reduce(value, device::Sum{}, W(0));
}

/// A row of n elements in the registers of its threads, in packs of N. A Position names an element
/// that belongs to the calling thread; for_each visits them all, in the same order for every row.
template <class T, int N>
struct HeldRow {
  using W = device::wide<T>;
  using Pack = device::Pack<T, N>;
  static constexpr bool is_held = true;
  static constexpr int most = held<T, N> * N;  ///< elements of a thread

  struct Position {
    int k, i;
    __device__ int number() const { return k * N + i; }  ///< 0 .. most - 1
    __device__ int pack() const { return threadIdx.x + k * blockDim.x; }
    __device__ int64_t column() const { return int64_t{pack()} * N + i; }
  };

  Pack packs[held<T, N>];

  __device__ void load(const T* row, int64_t n) {
#pragma unroll
    for (int k = 0; k < held<T, N>; ++k) {
      const int p = threadIdx.x + k * blockDim.x;
      packs[k] = p < n / N ? reinterpret_cast<const Pack*>(row)[p] : Pack{};
    }
  }
  __device__ W operator[](Position p) const { return device::widen(packs[p.k].at[p.i]); }

  template <class F>
  static __device__ void for_each(int64_t n, F&& f) {
#pragma unroll
    for (int k = 0; k < held<T, N>; ++k)
      if (threadIdx.x + k * blockDim.x < n / N)
#pragma unroll
        for (int i = 0; i < N; ++i) f(Position{k, i});
  }
  /// row[position] = f(position)
  template <class F>
  static __device__ void store(T* row, int64_t n, F&& f) {
#pragma unroll
    for (int k = 0; k < held<T, N>; ++k) {
      if (threadIdx.x + k * blockDim.x >= n / N) continue;
      Pack out;
#pragma unroll
      for (int i = 0; i < N; ++i) out.at[i] = device::narrow<T>(f(Position{k, i}));
      reinterpret_cast<Pack*>(row)[threadIdx.x + k * blockDim.x] = out;
    }
  }
  /// The element of a vector of n that stands over this position; `absent` where it is null.
  static __device__ W over(const T* vector, Position p, W absent) {
    return vector ? device::widen(reinterpret_cast<const Pack*>(vector)[p.pack()].at[p.i]) : absent;
  }
};

/// A row of any length, left in memory and read again each time.
template <class T>
struct LongRow {
  using W = device::wide<T>;
  static constexpr bool is_held = false;
  static constexpr int most = 1;
  using Position = int64_t;

  const T* values;

  __device__ void load(const T* row, int64_t) { values = row; }
  __device__ W operator[](Position i) const { return device::widen(values[i]); }

  template <class F>
  static __device__ void for_each(int64_t n, F&& f) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) f(i);
  }
  template <class F>
  static __device__ void store(T* row, int64_t n, F&& f) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) row[i] = device::narrow<T>(f(i));
  }
  static __device__ W over(const T* vector, Position i, W absent) {
    return vector ? device::widen(vector[i]) : absent;
  }
};

/// Calls f(Type<Row>, block) with the kind of row for n elements of T and the threads for it: held
/// in packs where the tensors are aligned and n is a multiple, held one by one, or long.
template <class T, class F>
void visit_row(bool aligned, int64_t n, F&& f) {
  using D = device_type<T>;
  visit_pack<T>(aligned, n, [&]<int N>(std::integral_constant<int, N>) {
    const dim3 block = row_block<D, N>(n);
    if (block.x > 0) {
      f(Type<HeldRow<D, N>>{}, block);
    } else {
      f(Type<LongRow<D>>{}, dim3(most_row_threads));
    }
  });
}

}  // namespace bs::cuda
