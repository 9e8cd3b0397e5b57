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

// What is stored as the i-th, of an element at `position`.

struct FlatCoordinates {
  int64_t* to;
  __device__ void store(int64_t i, int64_t position) const { to[i] = position; }
};

/// Of a matrix of less than 2^31 elements: both are one store.
struct PairsOfCoordinates {
  longlong2* to;
  Divisor columns;
  __device__ void store(int64_t i, int64_t position) const {
    const auto at = static_cast<uint32_t>(position);
    const uint32_t row = columns.divide(at);
    to[i] = {row, at - row * columns.number};
  }
};

/// Of any shape; `Divided` is Divisor, or an integer for 2^31 elements and more.
template <class Divided>
struct AllCoordinates {
  int64_t* to;
  int rank;
  Divided extent[Dims::max_rank];

  AllCoordinates(int64_t* to, const Shape& shape) : to(to), rank(shape.rank()) {
    for (int axis = 0; axis < rank; ++axis) extent[axis] = Divided(shape[axis]);
  }
  __device__ void store(int64_t i, int64_t position) const {
    int64_t* const place = to + i * rank;
#pragma unroll 1
    for (int axis = rank - 1; axis >= 0; --axis) {
      if constexpr (std::is_same_v<Divided, Divisor>) {
        const auto at = static_cast<uint32_t>(position);
        const uint32_t rest = extent[axis].divide(at);
        place[axis] = at - rest * extent[axis].number;
        position = rest;
      } else {
        const int64_t rest = position / extent[axis];
        place[axis] = position - rest * extent[axis];
        position = rest;
      }
    }
  }
};

/// Of elements that are selected, themselves.
template <class U>
struct Selected {
  const U* x;
  U* to;
  __device__ void store(int64_t i, int64_t position) const { to[i] = x[position]; }
};

/// Warps line their positions up in shared memory, and store them side by side.
template <bool aligned, class Found>
__global__ void __launch_bounds__(threads)
    store_kernel(const uint8_t* x, int64_t n, const int64_t* before, Found found) {
  __shared__ int counts[warp];
  __shared__ uint16_t lined_up[warps][warp * bytes];
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
    int at = up_to[turn] - static_cast<int>(flags[turn].count());
#pragma unroll
    for (int i = 0; i < bytes; ++i)
      if (flags[turn][i]) lined_up[number][at++] = static_cast<uint16_t>(lane * bytes + i);
    __syncwarp();
    const int count = __shfl_sync(all_lanes, up_to[turn], warp - 1);
    const int begin = __shfl_sync(all_lanes, in_front, turn * warps + number);
    const int64_t first = part_begin + warp_begin(turn);
    for (int i = lane; i < count; i += warp)
      found.store(begin_of_part + begin + i, first + lined_up[number][i]);
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
void store(const Tensor& flags, const Tensor& before, const Found& found, Stream stream) {
  const auto kernel = aligned16(flags) ? store_kernel<true, Found> : store_kernel<false, Found>;
  kernel<<<parts_of(flags), threads, 0, native(stream)>>>(flags_of(flags), flags.numel(),
                                                          before.data<int64_t>(), found);
  BS_CUDA_CHECK_LAUNCH("nonzero");
}

}  // namespace

void nonzero(const Tensor& x, const Tensor& before, const Tensor& coordinates, Stream stream) {
  const auto run = [&](const auto& found) { store(x, before, found, stream); };
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
          Selected<U>{static_cast<const U*>(x.data()), static_cast<U*>(values.data())}, stream);
  });
}

}  // namespace bs::cuda
