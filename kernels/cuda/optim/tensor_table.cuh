#pragma once
// One launch over many tensors: their addresses travel as an argument of the kernel, which since
// CUDA 12.1 may be 32 KiB long, so that no table lies in device memory and nothing is copied there.
#include <bs/kernels/cuda/optim/table_capacity.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/pack.cuh>

#include <array>
#include <type_traits>

namespace bs::cuda {

/// What one block works on: elements [begin, end) of tensor number `tensor`.
struct Chunk {
  int tensor;
  int64_t begin, end;
};

/// Up to `capacity` groups of `depth` tensors, all of a group of one size, cut into chunks.
template <int depth>
struct TensorTable {
  static constexpr int capacity = table_capacity(depth);
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

/// The same of numbers that a step takes from the device.
inline const double* numbers_of(const Tensor& t) {
  return static_cast<const double*>(address_of(t));
}

/// Whether `count` elements may be loaded at once from `pointer`.
template <int count, class T>
__device__ bool aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (count * sizeof(T)) == 0;
}

/// All neighbours of a pack, or the first one, to and from memory.
template <int N, class T, int Size>
__device__ void get(const T* from, device::Pack<T, Size>& pack) {
  static_assert(N == Size || N == 1);
  if constexpr (N == Size) {
    pack = *reinterpret_cast<const device::Pack<T, Size>*>(from);
  } else {
    pack.at[0] = *from;
  }
}
template <int N, class T, int Size>
__device__ void put(T* to, const device::Pack<T, Size>& pack) {
  static_assert(N == Size || N == 1);
  if constexpr (N == Size) {
    *reinterpret_cast<device::Pack<T, Size>*>(to) = pack;
  } else {
    *to = pack.at[0];
  }
}

/// One parameter of a table: its value, gradient and `moments` states of the step, and the weights
/// in full precision. States and weights may be null.
template <class T, int moments>
struct SteppedParameter {
  using W = device::wide<T>;
  T* value;
  const T* gradient;
  W* moment[moments > 0 ? moments : 1];
  W* master;

  __device__ SteppedParameter(const TensorTable<moments + 3>& table, int tensor)
      : value(table.template at<T>(0, tensor)),
        gradient(table.template at<T>(1, tensor)),
        master(table.template at<W>(moments + 2, tensor)) {
#pragma unroll
    for (int i = 0; i < moments; ++i) moment[i] = table.template at<W>(2 + i, tensor);
  }
  /// Whether four neighbours may be loaded at once.
  __device__ bool takes_packs() const {
    bool all = aligned<4>(value) && aligned<4>(gradient);
#pragma unroll
    for (int i = 0; i < moments; ++i) all = all && aligned<4>(moment[i]);
    return all && aligned<4>(master);
  }
  /// Loads the first N weights.
  template <int N, int Size>
  __device__ void weights(int64_t i, device::Pack<W, Size>& w) const {
    if (master) return get<N>(master + i, w);
    device::Pack<T, Size> narrow_w;
    get<N>(value + i, narrow_w);
#pragma unroll
    for (int k = 0; k < N; ++k) w.at[k] = device::widen(narrow_w.at[k]);
  }
};

/// Calls f(std::integral_constant<int, N>, u, first) for the elements of a chunk in two passes over
/// as many packs as a thread has at once: first with `load`, for each u, then with `step`. So all
/// loads are on their way before the first result is needed. N is 4, or 1 where packs do not fit.
template <int threads, int at_once, class Load, class Step>
__device__ void for_each_pack(const Chunk& c, bool takes_packs, Load&& load, Step&& step) {
  const auto walk = [&]<int N>(std::integral_constant<int, N> n, int64_t begin, int64_t end) {
    for (int64_t i = begin + N * threadIdx.x; i < end; i += N * threads * at_once) {
#pragma unroll
      for (int u = 0; u < at_once; ++u)
        if (i + u * N * threads < end) load(n, u, i + u * N * threads);
#pragma unroll
      for (int u = 0; u < at_once; ++u)
        if (i + u * N * threads < end) step(n, u, i + u * N * threads);
    }
  };
  const int64_t packs_end = takes_packs ? c.begin + (c.end - c.begin) / 4 * 4 : c.begin;
  walk(std::integral_constant<int, 4>{}, c.begin, packs_end);
  walk(std::integral_constant<int, 1>{}, packs_end, c.end);
}

}  // namespace bs::cuda
