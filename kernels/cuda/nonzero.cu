#include <bs/kernels/gather.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <limits>

namespace bs::cuda {

// A block counts the true elements of each part, and one block sums the counts up. As the host has
// allocated the result, a block a part writes its coordinates from where the sum says.

namespace {

constexpr int warp = 32, warps = 8, threads = warp * warps;
constexpr int bytes = 16, words = bytes / 4;             ///< of a thread at a time
constexpr int turns = nonzero_part / (threads * bytes);  ///< until a part is through
static_assert(turns * warps == warp, "a lane each holds a warp's count of one turn");
constexpr unsigned all_lanes = 0xffffffffU;

/// Bit 7 of each byte that is not zero.
__device__ unsigned true_bytes(unsigned word) {
  constexpr unsigned low = 0x7f7f7f7fU;
  return (((word & low) + low) | word) & ~low;
}

/// 16 flags, as bits of words.
struct Flags {
  unsigned word[words];

  /// Those from `at` on; what is behind n is false. Aligned ones are one load.
  template <bool aligned>
  static __device__ Flags load(const uint8_t* x, int64_t at, int64_t n) {
    Flags flags{};
    if (aligned && at + bytes <= n) {
      const uint4 four = *reinterpret_cast<const uint4*>(x + at);
      flags = {{true_bytes(four.x), true_bytes(four.y), true_bytes(four.z), true_bytes(four.w)}};
    } else {
#pragma unroll
      for (int i = 0; i < bytes; ++i)
        if (at + i < n && x[at + i] != 0) flags.word[i / 4] |= 0x80U << (i % 4 * 8);
    }
    return flags;
  }
  __device__ unsigned count() const {
    unsigned sum = 0;
#pragma unroll
    for (int w = 0; w < words; ++w) sum += __popc(word[w]);
    return sum;
  }
  __device__ bool operator[](int i) const { return word[i / 4] >> (i % 4 * 8) & 0x80U; }
};

/// Where this warp's flags of a turn begin, in the part.
__device__ int warp_begin(int turn) {
  return (turn * warps + static_cast<int>(threadIdx.x) / warp) * warp * bytes;
}

template <bool aligned>
__device__ void load_part(const uint8_t* x, int64_t n, Flags (&flags)[turns]) {
  const int lane = static_cast<int>(threadIdx.x) % warp;
#pragma unroll
  for (int turn = 0; turn < turns; ++turn)
    flags[turn] =
        Flags::load<aligned>(x, blockIdx.x * nonzero_part + warp_begin(turn) + lane * bytes, n);
}

/// The sum of the values of this lane and of those before it.
template <class T>
__device__ T sum_up_to(T value) {
  const int lane = static_cast<int>(threadIdx.x) % warp;
#pragma unroll
  for (int offset = 1; offset < warp; offset *= 2) {
    const T other = __shfl_up_sync(all_lanes, value, offset);
    if (lane >= offset) value += other;
  }
  return value;
}

template <bool aligned>
__global__ void __launch_bounds__(threads)
    count_kernel(const uint8_t* x, int64_t n, int64_t* counts) {
  Flags flags[turns];
  load_part<aligned>(x, n, flags);
  let_next_launch_begin();
  unsigned count = 0;
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) count += flags[turn].count();
  count = device::block_reduce(count, device::Sum{}, 0U);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

constexpr int sum_threads = 1024;

/// before[p] = the sum of what stood there in front of p, up to before[parts].
__global__ void __launch_bounds__(sum_threads) sum_counts_kernel(int64_t* before, int64_t parts) {
  __shared__ int64_t of_warp[sum_threads / warp];
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int number = static_cast<int>(threadIdx.x) / warp;
  wait_for_previous_launch();
  int64_t total = 0;
  for (int64_t first = 0; first <= parts; first += sum_threads) {
    const int64_t at = first + threadIdx.x;
    const int64_t count = at < parts ? before[at] : 0;
    const int64_t here = sum_up_to(count);
    if (lane == warp - 1) of_warp[number] = here;
    __syncthreads();
    const int64_t of_warps = sum_up_to(of_warp[lane]);
    const int64_t in_front = __shfl_sync(all_lanes, of_warps, number > 0 ? number - 1 : 0);
    if (at <= parts) before[at] = total + (number > 0 ? in_front : 0) + here - count;
    total += __shfl_sync(all_lanes, of_warps, warp - 1);
    __syncthreads();
  }
}

// What is lined up of a true element of a part, and what is stored of it as the i-th of all.

/// Elements by their place in what a warp has at a time.
struct Places {
  using Held = uint16_t;
  static constexpr int together = bytes;  ///< elements of a thread at a time
  template <bool aligned>
  __device__ void load(int64_t, unsigned place, int64_t, Held (&held)[together]) const {
#pragma unroll
    for (int i = 0; i < together; ++i) held[i] = static_cast<Held>(place + i);
  }
};

struct FlatCoordinates : Places {
  int64_t* to;
  explicit FlatCoordinates(int64_t* to) : to(to) {}
  __device__ void store(int64_t i, int64_t begin, uint16_t place) const { to[i] = begin + place; }
};

/// Of a matrix of less than 2^31 elements: both are one store.
struct PairsOfCoordinates : Places {
  longlong2* to;
  Divisor columns;
  PairsOfCoordinates(longlong2* to, Divisor columns) : to(to), columns(columns) {}
  __device__ void store(int64_t i, int64_t begin, uint16_t place) const {
    const auto at = static_cast<uint32_t>(begin + place);
    const uint32_t row = columns.divide(at);
    to[i] = {row, at - row * columns.number};
  }
};

/// Of any shape; `Divided` is Divisor, or an integer for 2^31 elements and more.
template <class Divided>
struct AllCoordinates : Places {
  int64_t* to;
  int rank;
  Divided extent[Dims::max_rank];

  AllCoordinates(int64_t* to, const Shape& shape) : to(to), rank(shape.rank()) {
    for (int axis = 0; axis < rank; ++axis) extent[axis] = Divided(shape[axis]);
  }
  __device__ void store(int64_t i, int64_t begin, uint16_t place) const {
    int64_t* const coordinates = to + i * rank;
    int64_t position = begin + place;
#pragma unroll 1
    for (int axis = rank - 1; axis >= 0; --axis) {
      if constexpr (std::is_same_v<Divided, Divisor>) {
        const auto at = static_cast<uint32_t>(position);
        const uint32_t rest = extent[axis].divide(at);
        coordinates[axis] = at - rest * extent[axis].number;
        position = rest;
      } else {
        const int64_t rest = position / extent[axis];
        coordinates[axis] = position - rest * extent[axis];
        position = rest;
      }
    }
  }
};

/// Of elements that are selected, themselves.
template <class U>
struct Selected {
  using Held = U;
  static constexpr int together = std::min(bytes, 64 / static_cast<int>(sizeof(U)));
  const U* x;
  U* to;

  /// Those from `place` behind `begin` on, of n.
  template <bool aligned>
  __device__ void load(int64_t begin, unsigned place, int64_t n, U (&held)[together]) const {
    constexpr int N = device::pack_size<U>;
    const int64_t at = begin + place;
    if (aligned && at + together <= n) {
      const auto* from = reinterpret_cast<const uint4*>(x + at);
#pragma unroll
      for (int p = 0; p < together / N; ++p) {
        const uint4 raw = __ldcs(from + p);
        const auto& pack = reinterpret_cast<const device::Pack<U, N>&>(raw);
#pragma unroll
        for (int i = 0; i < N; ++i) held[p * N + i] = pack.at[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < together; ++i)
        if (at + i < n) held[i] = x[at + i];
    }
  }
  __device__ void store(int64_t i, int64_t, U value) const { to[i] = value; }
};

/// Blocks of a multiprocessor that registers must do for: any number where 64-bit divisions need
/// them, else what the compiler thinks.
template <class Found>
inline constexpr int least_blocks = std::is_same_v<Found, AllCoordinates<int64_t>> ? 1 : 0;

/// Warps line what they have of a turn up in shared memory, and store it side by side.
template <bool aligned, class Found>
__global__ void __launch_bounds__(threads, least_blocks<Found>)
    store_kernel(const uint8_t* x, int64_t n, const int64_t* before, Found found) {
  using Held = typename Found::Held;
  __shared__ int counts[warp];
  __shared__ Held lined_up[warps][warp * bytes];
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int number = static_cast<int>(threadIdx.x) / warp;
  Flags flags[turns];
  load_part<aligned>(x, n, flags);
  int up_to[turns];
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) {
    up_to[turn] = static_cast<int>(sum_up_to(flags[turn].count()));
    if (lane == warp - 1) counts[turn * warps + number] = up_to[turn];
  }
  __syncthreads();
  const int of_lane = counts[lane];
  const int in_front = static_cast<int>(sum_up_to(of_lane)) - of_lane;
  const int64_t part_begin = blockIdx.x * nonzero_part;
  const int64_t begin_of_part = before[blockIdx.x];
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) {
    const int64_t first = part_begin + warp_begin(turn);
    const auto here = static_cast<int>(flags[turn].count());
    int at = up_to[turn] - here;
    if (here > 0) {
#pragma unroll
      for (int from = 0; from < bytes; from += Found::together) {
        Held held[Found::together];
        found.template load<aligned>(first, lane * bytes + from, n, held);
#pragma unroll
        for (int i = 0; i < Found::together; ++i)
          if (flags[turn][from + i]) lined_up[number][at++] = held[i];
      }
    }
    __syncwarp();
    const int count = __shfl_sync(all_lanes, up_to[turn], warp - 1);
    const int begin = __shfl_sync(all_lanes, in_front, turn * warps + number);
    for (int i = lane; i < count; i += warp)
      found.store(begin_of_part + begin + i, first, lined_up[number][i]);
    __syncwarp();
  }
}

const uint8_t* flags_of(const Tensor& x) { return static_cast<const uint8_t*>(x.data()); }

/// A block a part.
unsigned parts_of(const Tensor& x) { return grid_of("nonzero", ceil_div(x.numel(), nonzero_part)); }

}  // namespace

void count_nonzero(const Tensor& x, const Tensor& before, Stream stream) {
  const unsigned parts = parts_of(x);
  int64_t* const counts = before.data<int64_t>();
  const auto kernel = aligned16(x) ? count_kernel<true> : count_kernel<false>;
  kernel<<<parts, threads, 0, native(stream)>>>(flags_of(x), x.numel(), counts);
  BS_CUDA_CHECK_LAUNCH("nonzero");
  launch_early(sum_counts_kernel, 1, sum_threads, 0, stream, counts, int64_t{parts});
}

namespace {

template <class Found>
void store(const Tensor& flags, const Tensor& before, const Found& found, bool aligned,
           Stream stream) {
  const auto kernel = aligned ? store_kernel<true, Found> : store_kernel<false, Found>;
  kernel<<<parts_of(flags), threads, 0, native(stream)>>>(flags_of(flags), flags.numel(),
                                                          before.data<int64_t>(), found);
  BS_CUDA_CHECK_LAUNCH("nonzero");
}

}  // namespace

void nonzero(const Tensor& x, const Tensor& before, const Tensor& coordinates, Stream stream) {
  const auto run = [&](const auto& found) { store(x, before, found, aligned16(x), stream); };
  int64_t* const to = coordinates.data<int64_t>();
  const bool narrow = x.numel() <= std::numeric_limits<int32_t>::max();
  if (x.rank() == 1) return run(FlatCoordinates{to});
  if (!narrow) return run(AllCoordinates<int64_t>(to, x.shape()));
  if (x.rank() == 2)
    return run(PairsOfCoordinates{reinterpret_cast<longlong2*>(to), Divisor(x.size(1))});
  run(AllCoordinates<Divisor>(to, x.shape()));
}

void masked_select(const Tensor& x, const Tensor& mask, const Tensor& before, const Tensor& values,
                   Stream stream) {
  detail::visit_bits(x.dtype(), [&]<class U>(Type<U>) {
    store(mask, before,
          Selected<U>{static_cast<const U*>(x.data()), static_cast<U*>(values.data())},
          aligned16(x, mask), stream);
  });
}

}  // namespace bs::cuda
