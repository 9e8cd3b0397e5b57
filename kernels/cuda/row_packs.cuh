#pragma once
// Packs of rows, some a thread, for kernels that do little more than store.
#include <bs/lib/cuda/grid.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

namespace bs::cuda {

/// A block is over after a few stores a thread, as those of fills: one that goes on to another row
/// waits for what the row loads. Short rows share a block, a row a threadIdx.y.
struct RowPacks {
  static constexpr int threads = 256, several = 4;  ///< packs of a thread, at most

  int64_t rows, packs;  ///< in all, and of a row
  unsigned across = 1;  ///< threads of a row in a block
  Divisor groups;       ///< blocks of a row

  RowPacks(int64_t rows_, int64_t packs_) : rows(rows_), packs(packs_) {
    while (across < threads && across < packs) across *= 2;
    groups = Divisor(ceil_div(packs, int64_t{across} * several));
  }
  dim3 block() const { return {across, threads / across}; }
  unsigned grid(const char* op) const {
    return grid_of(op, ceil_div(rows, threads / across) * groups.number);
  }

  /// The packs of a row that threads of a block have.
  struct Stretch {
    int64_t row, first;
    unsigned count;

    /// Calls f(number) for the thread's packs, the first of the stretch being 0.
    template <class F>
    __device__ void for_each(F&& f) const {
#pragma unroll
      for (int k = 0; k < several; ++k)
        if (const unsigned p = threadIdx.x + k * blockDim.x; p < count) f(p);
    }
    /// Fills the stretch, of packs of N elements, but for an element of the row, where it is there.
    /// The thread that has its pack stores it again: a test in each pack would cost more.
    template <int N, class T>
    __device__ void fill_but_one(T* row_begin, T value, int64_t one, T value_of_one) const {
      device::Pack<T, N> pack;
#pragma unroll
      for (int i = 0; i < N; ++i) pack.at[i] = value;
      auto* const to = reinterpret_cast<device::Pack<T, N>*>(row_begin) + first;
      for_each([&](unsigned p) { to[p] = pack; });
      const int64_t p = one / N - first;  // whose threads side by side are a power of two
      if (one >= 0 && p >= 0 && p < count && (p & (blockDim.x - 1)) == threadIdx.x)
        row_begin[one] = value_of_one;
    }
  };
  /// The row may be beyond the last.
  __device__ Stretch stretch() const {
    const uint32_t row_group = groups.divide(blockIdx.x), span = blockDim.x * several;
    const int64_t first = int64_t{blockIdx.x - row_group * groups.number} * span;
    return {int64_t{row_group} * blockDim.y + threadIdx.y, first,
            static_cast<unsigned>(min(packs - first, int64_t{span}))};
  }
};

}  // namespace bs::cuda
