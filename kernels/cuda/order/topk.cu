#include <bs/kernels/cuda/order/topk.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/order/sort_key.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <bit>

namespace bs::cuda {

// An element's rank is one number, its key above its place, so no two ranks are alike: wanted are
// the k largest of a row. The largest keys of the threads are samples, and the k-th of these is a
// bound that few elements reach. Those are listed and sorted on the chip. If they are more than the
// list holds, the bound is raised by halves, each a pass over the row.

namespace {

constexpr int warp = 32;
constexpr int held_threads = 256, held_keys = 16;  // of a row in registers
constexpr int long_threads = 512;
constexpr int64_t longest_held_row = held_threads * held_keys;
constexpr unsigned short_list = 64;  // ordered by counting

/// Of a key in the order asked for, the largest first; of equal keys the first place.
__device__ uint64_t rank_of(uint32_t key, uint32_t place) { return uint64_t{key} << 32 | ~place; }

template <class T>
__device__ uint64_t rank_of(T value, uint32_t place, uint32_t flip) {
  return rank_of(static_cast<uint32_t>(key_of(value)) ^ flip, place);
}

/// A row of at most longest_held_row elements in the registers of its threads.
template <class T, int N_>
struct HeldRanks {
  using Element = T;
  static constexpr int N = N_, threads = held_threads, packs = held_keys / N;
  static constexpr int blocks = N == 1 ? 2 : 3;  // of a multiprocessor, without spills
  uint32_t keys[held_keys];

  __device__ HeldRanks(const T* row, uint32_t, uint32_t end, uint32_t flip) {
    device::Raw<T, N> raw[packs] = {};
#pragma unroll
    for (int p = 0; p < packs; ++p)
      if (place(p) < end) raw[p] = *reinterpret_cast<const device::Raw<T, N>*>(row + place(p));
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const auto& pack = reinterpret_cast<const device::Pack<T, N>&>(raw[p]);
#pragma unroll
      for (int i = 0; i < N; ++i)
        keys[p * N + i] = place(p) < end ? static_cast<uint32_t>(key_of(pack.at[i])) ^ flip : 0;
    }
  }
  static __device__ uint32_t place(int pack) { return (pack * blockDim.x + threadIdx.x) * N; }

  template <class F>
  __device__ void each_key(F&& f) const {
#pragma unroll
    for (int p = 0; p < packs; ++p)
#pragma unroll
      for (int i = 0; i < N; ++i) f(keys[p * N + i], place(p) + i);
  }
  template <class F>
  __device__ void each(F&& f) const {
    each_key([&](uint32_t key, uint32_t place) { f(rank_of(key, place)); });
  }
};

/// The elements [begin, end) of a row, left in memory.
template <class T, int N_>
struct LongRanks {
  using Element = T;
  static constexpr int N = N_, threads = long_threads, blocks = 2;
  static constexpr uint32_t ahead = 4;  // loads on their way
  const T* row;
  uint32_t begin, end, flip;

  __device__ LongRanks(const T* row, uint32_t begin, uint32_t end, uint32_t flip)
      : row(row), begin(begin), end(end), flip(flip) {}

  template <class F>
  __device__ void each(F&& f) const {
    for (uint32_t at = begin + threadIdx.x * N; at < end; at += ahead * threads * N) {
      device::Raw<T, N> raw[ahead];
#pragma unroll
      for (uint32_t u = 0; u < ahead; ++u)
        if (const uint32_t place = at + u * threads * N; place < end)
          raw[u] = *reinterpret_cast<const device::Raw<T, N>*>(row + place);
#pragma unroll
      for (uint32_t u = 0; u < ahead; ++u) {
        const uint32_t place = at + u * threads * N;
        if (place >= end) break;
        const auto& pack = reinterpret_cast<const device::Pack<T, N>&>(raw[u]);
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) f(rank_of(pack.at[i], place + i, flip));
      }
    }
  }
};

/// Ranks that the parts of a row have left.
struct ListedRanks {
  using Element = uint64_t;
  static constexpr int N = 1, threads = long_threads, blocks = 2;
  const uint64_t* ranks;
  uint32_t count;

  __device__ ListedRanks(const uint64_t* ranks, uint32_t, uint32_t count, uint32_t)
      : ranks(ranks), count(count) {}

  template <class F>
  __device__ void each(F&& f) const {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count; i += threads) f(ranks[i]);
  }
};

/// What is wanted of each row.
struct Wanted {
  unsigned k, capacity;  ///< of the list, a power of two and at least 2 k
  uint32_t flip;         ///< all bits where the smallest come first
  int low_bit;           ///< below which keys do not differ
  uint32_t last_place;
  int64_t* indices;
  uint64_t* ranks;  ///< to be left for another launch in place of indices; or null

  /// Leaves number `place` of block `line`, if it is among the first k.
  __device__ void put(int64_t line, unsigned place, uint64_t rank) const {
    if (place >= k) return;
    if (ranks) {
      ranks[line * k + place] = rank;
    } else {
      indices[line * k + place] = ~static_cast<uint32_t>(rank);
    }
  }
};

/// Of the samples the largest, and a key that at least k of them reach, and no more than k if they
/// differ. By one warp.
struct SampledKeys {
  uint32_t most, bound;
};
template <int threads>
__device__ SampledKeys sampled_keys(const uint32_t* samples, const Wanted& wanted) {
  constexpr int held = threads / warp;
  constexpr unsigned all_lanes = 0xffffffffU;
  uint32_t mine[held], most = 0, least = ~0U;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const unsigned at = threadIdx.x + i * warp;
    const bool inside = at < blockDim.x;
    mine[i] = inside ? samples[at] : 0;
    most = max(most, mine[i]);
    if (inside) least = min(least, mine[i]);
  }
  most = __reduce_max_sync(all_lanes, most);
  least = __reduce_min_sync(all_lanes, least);
  if (wanted.k > blockDim.x) return {most, 0};
  if (most == least) return {most, most};
  const int first_bit = 31 - __clz(static_cast<int>(most ^ least));  // where they differ
  uint32_t bound = most & ~((2U << first_bit) - 1);
  for (int bit = first_bit; bit >= wanted.low_bit; --bit) {
    const uint32_t tried = bound | 1U << bit;
    unsigned reached = 0;
#pragma unroll
    for (int i = 0; i < held; ++i) reached += mine[i] >= tried ? 1 : 0;
    reached = __reduce_add_sync(all_lanes, reached);
    if (reached < wanted.k) continue;
    bound = tried;
    if (reached == wanted.k) break;
  }
  return {most, bound};
}

/// The list in order, the largest rank first; by Batcher's bitonic sort. Of `size`, a power of two.
__device__ void sort_list(uint64_t* list, unsigned size) {
  for (unsigned run = 2; run <= size; run *= 2)
    for (unsigned apart = run / 2; apart > 0; apart /= 2) {
      for (unsigned i = threadIdx.x; i < size / 2; i += blockDim.x) {
        const unsigned a = 2 * i - (i & (apart - 1)), b = a + apart;
        const uint64_t x = list[a], y = list[b];
        if ((x < y) != ((a & run) == 0)) continue;
        list[a] = y;
        list[b] = x;
      }
      __syncthreads();
    }
}

/// Puts the first k of the listed ranks in order.
__device__ void put_list(uint64_t* list, unsigned count, int64_t line, const Wanted& wanted) {
  if (count <= short_list) {
    const unsigned mine = threadIdx.x;
    if (mine >= count) return;
    unsigned before = 0;
    for (unsigned i = 0; i < count; ++i) before += list[i] > list[mine] ? 1 : 0;
    return wanted.put(line, before, list[mine]);
  }
  unsigned size = 2 * short_list;
  while (size < count) size *= 2;
  for (unsigned i = count + threadIdx.x; i < size; i += blockDim.x) list[i] = 0;
  __syncthreads();
  sort_list(list, size);
  for (unsigned i = threadIdx.x; i < wanted.k; i += blockDim.x) wanted.put(line, i, list[i]);
}

/// The first k of part blockIdx.y of row blockIdx.x.
template <class Row>
__global__ void __launch_bounds__(Row::threads, Row::blocks)
    first_kernel(const typename Row::Element* x, int64_t n, Wanted wanted) {
  extern __shared__ uint64_t list[];
  __shared__ uint32_t samples[Row::threads];
  __shared__ uint64_t low_bound, high_bound;
  __shared__ unsigned listed;
  const int64_t packs = n / Row::N;
  const auto begin_of = [&](unsigned part) {
    return static_cast<uint32_t>(packs * part / gridDim.y * Row::N);
  };
  const Row row(x + blockIdx.x * n, begin_of(blockIdx.y), begin_of(blockIdx.y + 1), wanted.flip);
  uint32_t largest = 0;
  row.each([&](uint64_t rank) { largest = max(largest, static_cast<uint32_t>(rank >> 32)); });
  samples[threadIdx.x] = largest;
  if (threadIdx.x == 0) listed = 0;
  __syncthreads();
  if (threadIdx.x < warp) {
    const SampledKeys keys = sampled_keys<Row::threads>(samples, wanted);
    if (threadIdx.x == 0) {
      low_bound = rank_of(keys.bound, wanted.last_place);
      high_bound = rank_of(keys.most, 0);
    }
  }
  __syncthreads();
  // At least k ranks reach `low`, fewer `high`, or `high` is the largest that there can be.
  uint64_t low = low_bound, high = high_bound, bound = low;
  unsigned count;
  while (true) {
    row.each([&](uint64_t rank) {
      if (rank < bound) return;
      const unsigned at = atomicAdd(&listed, 1U);
      if (at < wanted.capacity) list[at] = rank;
    });
    __syncthreads();
    count = listed;
    if (count >= wanted.k && count <= wanted.capacity) break;
    (count >= wanted.k ? low : high) = bound;
    bound = low + (high - low) / 2;
    __syncthreads();
    if (threadIdx.x == 0) listed = 0;
    __syncthreads();
  }
  put_list(list, count, int64_t{blockIdx.x} * gridDim.y + blockIdx.y, wanted);
}

/// Elements of the block's row of which a condition holds.
struct BlockCount {
  unsigned (*of_warps)[held_threads / warp];  ///< in turns, so that one barrier a count is enough
  unsigned turn = 0;

  template <class Row, class F>
  __device__ unsigned operator()(const Row& row, F&& holds) {
    unsigned count = 0;
    row.each_key([&](uint32_t key, uint32_t place) { count += holds(key, place) ? 1 : 0; });
    count = __reduce_add_sync(0xffffffffU, count);
    turn ^= 1;
    if (threadIdx.x % warp == 0) of_warps[turn][threadIdx.x / warp] = count;
    __syncthreads();
    count = 0;
#pragma unroll
    for (int w = 0; w < held_threads / warp; ++w) count += of_warps[turn][w];
    return count;
  }
};

/// The place of number k, from 0 on, in the order of row blockIdx.x. The keys are halved until few
/// are left, which are ranked. Where these are many of one value, the places are halved.
template <class Row>
__global__ void __launch_bounds__(Row::threads, Row::blocks)
    number_kernel(const typename Row::Element* x, int64_t n, unsigned k, int low_bit,
                  int64_t* indices) {
  __shared__ unsigned counts[2][held_threads / warp];
  __shared__ uint64_t list[short_list];
  __shared__ unsigned listed;
  if (threadIdx.x < held_threads / warp) counts[0][threadIdx.x] = counts[1][threadIdx.x] = 0;
  if (threadIdx.x == 0) listed = 0;
  const Row row(x + blockIdx.x * n, 0, static_cast<uint32_t>(n), ~0U);
  __syncthreads();
  BlockCount count{counts};
  // The wanted key is within [low, high): more than k reach `low`, k at most reach `high`.
  uint64_t low = 0, high = uint64_t{1} << 32;
  unsigned reach_low = blockDim.x * held_keys, reach_high = 0;
  while (reach_low - reach_high > short_list && high - low > uint64_t{1} << low_bit) {
    const uint64_t middle = low + (high - low) / 2;
    const auto bound = static_cast<uint32_t>(middle);
    const unsigned reached = count(row, [=](uint32_t key, uint32_t) { return key >= bound; });
    (reached > k ? low : high) = middle;
    (reached > k ? reach_low : reach_high) = reached;
  }
  const auto first = static_cast<uint32_t>(low), width = static_cast<uint32_t>(high - 1 - low);
  const auto within = [=](uint32_t key) { return key - first <= width; };
  const unsigned before = k - reach_high;
  if (reach_low - reach_high > short_list) {
    uint32_t from = 0, to = static_cast<uint32_t>(n);  // more than `before` lie in front of `to`
    while (to - from > 1) {
      const uint32_t middle = from + (to - from) / 2;
      const unsigned in_front =
          count(row, [=](uint32_t key, uint32_t place) { return within(key) && place < middle; });
      (in_front > before ? to : from) = middle;
    }
    if (threadIdx.x == 0) indices[blockIdx.x] = from;
    return;
  }
  row.each_key([&](uint32_t key, uint32_t place) {
    if (within(key)) list[atomicAdd(&listed, 1U)] = rank_of(key, place);
  });
  __syncthreads();
  if (threadIdx.x >= listed) return;
  const uint64_t mine = list[threadIdx.x];
  unsigned greater = 0;
  for (unsigned i = 0; i < listed; ++i) greater += list[i] > mine ? 1 : 0;
  if (greater == before) indices[blockIdx.x] = ~static_cast<uint32_t>(mine);
}

/// Threads of a block that holds a row of n elements.
int threads_of_row(int64_t n) {
  constexpr uint64_t least = short_list;
  return static_cast<int>(std::max(least, std::bit_ceil(static_cast<uint64_t>(n)) / held_keys));
}

/// Calls f(Type<T>) with the device's type of elements of at most 32 bits; bools are bytes.
template <class F>
void visit_short(DType dtype, F&& f) {
  visit_any(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      f(Type<uint8_t>{});
    } else if constexpr (sizeof(T) <= 4) {
      f(Type<device_type<T>>{});
    }
  });
}

/// Parts that a row is cut into, so that few long rows keep the GPU busy.
int64_t parts_of(int64_t rows, int64_t n, Device device) {
  constexpr int64_t least = 1 << 14, blocks_each = 2;
  const int64_t wanted = blocks_each * device_properties(device).multiprocessors / rows;
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, n / least));
}

template <class Row>
void launch(const typename Row::Element* x, int64_t rows, int64_t n, int64_t parts, int threads,
            const Wanted& wanted, Stream stream) {
  const dim3 grid(grid_of("topk", rows), static_cast<unsigned>(parts));
  first_kernel<Row>
      <<<grid, threads, wanted.capacity * sizeof(uint64_t), native(stream)>>>(x, n, wanted);
  BS_CUDA_CHECK_LAUNCH("topk");
}

template <class T>
void select(const Tensor& x, Wanted wanted, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1);
  const auto* const from = static_cast<const T*>(x.data());
  const bool held = n <= longest_held_row;
  const int64_t parts = held ? 1 : parts_of(rows, n, x.device());
  Tensor listed;
  if (parts > 1) {
    listed = Tensor::empty({rows, parts * wanted.k}, i64, x.device());
    wanted.ranks = static_cast<uint64_t*>(listed.data());
  }
  const int threads = held ? threads_of_row(n) : long_threads;
  const auto run = [&]<int N>(std::integral_constant<int, N>) {
    if (held) {
      launch<HeldRanks<T, N>>(from, rows, n, parts, threads, wanted, stream);
    } else {
      launch<LongRanks<T, N>>(from, rows, n, parts, threads, wanted, stream);
    }
  };
  visit_pack<T>(aligned16(x), n, run);
  if (parts == 1) return;
  const uint64_t* const ranks = std::exchange(wanted.ranks, nullptr);
  launch<ListedRanks>(ranks, rows, parts * wanted.k, 1, long_threads, wanted, stream);
}

}  // namespace

namespace {
constexpr int64_t least_row = 129;  ///< shorter ones are ranked, several a block
}

bool selects_first(DType dtype, int64_t n, int64_t k) {
  constexpr int64_t most = 2048, least_share = 8;
  return size_of(dtype) <= 4 && n >= least_row && k <= most && k * least_share <= n;
}

void select_first(const Tensor& x, const Tensor& indices, bool descending, Stream stream) {
  constexpr unsigned least_capacity = 256;
  const auto k = static_cast<unsigned>(indices.size(1));
  const Wanted wanted{.k = k,
                      .capacity = std::max(least_capacity, std::bit_ceil(2 * k)),
                      .flip = descending ? 0 : ~0U,
                      .low_bit = lowest_key_bit(x.dtype()),
                      .last_place = static_cast<uint32_t>(x.size(1) - 1),
                      .indices = indices.data<int64_t>(),
                      .ranks = nullptr};
  visit_short(x.dtype(), [&]<class T>(Type<T>) { select<T>(x, wanted, stream); });
}

bool selects_number(DType dtype, int64_t n) {
  return size_of(dtype) <= 4 && n >= least_row && n <= longest_held_row;
}

void select_number(const Tensor& x, const Tensor& indices, int64_t k, Stream stream) {
  const int64_t rows = x.size(0), n = x.size(1);
  visit_short(x.dtype(), [&]<class T>(Type<T>) {
    visit_pack<T>(aligned16(x), n, [&]<int N>(std::integral_constant<int, N>) {
      number_kernel<HeldRanks<T, N>>
          <<<grid_of("kthvalue", rows), threads_of_row(n), 0, native(stream)>>>(
              static_cast<const T*>(x.data()), n, static_cast<unsigned>(k),
              lowest_key_bit(x.dtype()), indices.data<int64_t>());
    });
  });
  BS_CUDA_CHECK_LAUNCH("kthvalue");
}

}  // namespace bs::cuda
