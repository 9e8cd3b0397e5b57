#pragma once
// One launch over many tensors: their addresses travel as an argument of the kernel, which since
// CUDA 12.1 may be 32 KiB long, so that no table lies in device memory and nothing is copied there.
#include <bs/lib/cuda/launch.h>

#include <array>

namespace bs::cuda {

/// What one block works on: elements [begin, end) of tensor number `tensor`.
struct Chunk {
  int tensor;
  int64_t begin, end;
};

/// Up to `capacity` groups of `depth` tensors, all of a group of one size, cut into chunks.
template <int depth>
struct TensorTable {
  static constexpr int capacity = 30000 / (8 * depth + 12);
  static constexpr int64_t chunk_size = 8192;

  void* address[depth][capacity];
  int64_t numel[capacity];
  int first_chunk[capacity + 1];  ///< of each group; then the number of all chunks
  int groups;

  TensorTable() { clear(); }
  void clear() { groups = first_chunk[0] = 0; }
  bool full() const { return groups == capacity; }
  unsigned chunks() const { return static_cast<unsigned>(first_chunk[groups]); }
  void add(const std::array<void*, depth>& addresses, int64_t elements) {
    for (size_t i = 0; i < depth; ++i) address[i][groups] = addresses[i];
    numel[groups] = elements;
    first_chunk[groups + 1] =
        first_chunk[groups] + static_cast<int>(ceil_div(elements, chunk_size));
    ++groups;
  }

  template <class T>
  __device__ T* at(int i, int tensor) const {
    return static_cast<T*>(address[i][tensor]);
  }
  __device__ Chunk chunk(int number) const {
    int low = 0;
    int high = groups - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_chunk[middle] <= number) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int64_t begin = (number - first_chunk[low]) * chunk_size;
    const int64_t end = begin + chunk_size < numel[low] ? begin + chunk_size : numel[low];
    return {low, begin, end};
  }
};

/// Calls `add(table, item)` for the items that `chosen` picks, and `launch(table)` whenever the
/// table is full and at the end, if there is anything in it.
template <int depth, class Items, class Chosen, class Add, class Launch>
void for_each_table(const Items& items, Chosen&& chosen, Add&& add, Launch&& launch) {
  TensorTable<depth> table;
  for (const auto& item : items) {
    if (!chosen(item)) continue;
    if (table.full()) {
      launch(table);
      table.clear();
    }
    add(table, item);
  }
  if (table.groups > 0) launch(table);
}

inline constexpr std::array floating_dtypes = {f32, bf16, f16, f64};

/// Address of the elements, null for an undefined tensor.
inline void* address_of(const Tensor& t) { return t.defined() ? t.data() : nullptr; }

/// Whether `count` elements may be loaded at once from `pointer`.
template <int count, class T>
__device__ bool aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (count * sizeof(T)) == 0;
}

}  // namespace bs::cuda
