#pragma once
// Rows of the last axis on the threads of a warp or of a block, in loads of 16 bytes where rows
// allow it.
#include <bs/lib/cuda/launch.h>
#include <bs/lib/tensor.h>
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/pack.cuh>
#include <bs/kernels/cuda/device/reduce.cuh>

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

/// The packs of one row that belong to this thread; those beyond the row's end are zeros.
template <class T, int N>
struct RowPart {
  device::Pack<T, N> packs[held<T, N>];

  __device__ void load(const T* row, int packs_in_row) {
    const auto* from = reinterpret_cast<const device::Pack<T, N>*>(row);
#pragma unroll
    for (int k = 0; k < held<T, N>; ++k) {
      const int p = threadIdx.x + k * blockDim.x;
      packs[k] = p < packs_in_row ? from[p] : device::Pack<T, N>{};
    }
  }
};

}  // namespace bs::cuda
