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
constexpr int bytes = 16, words = 4, of_word = bytes / words;  ///< of a thread at a time
constexpr int turns = nonzero_part / (threads * bytes);        ///< until a part is through
static_assert(turns * warps == warp, "a lane each holds a warp's count of one turn");
constexpr unsigned all_lanes = 0xffffffffU;

/// Bit 7 of each byte that is not zero.
__device__ unsigned true_bytes(unsigned word) {
  constexpr unsigned low = 0x7f7f7f7fU;
  return (((word & low) + low) | word) & ~low;
}

/// Where a thread's elements of a turn's word begin in the part. Words of neighbours lie side by
/// side: what these line up then goes to different banks.
__device__ int word_begin(int turn, int word) {
  return turn * (threads * bytes) + static_cast<int>(threadIdx.x) / warp * (warp * bytes) +
         word * (warp * of_word) + static_cast<int>(threadIdx.x) % warp * of_word;
}

/// A block's part of n elements.
struct Part {
  int64_t begin;
  int count;
  bool whole;  ///< and aligned

  __device__ Part(int64_t n, bool aligned)
      : begin(blockIdx.x * nonzero_part),
        count(static_cast<int>(min(n - begin, nonzero_part))),
        whole(aligned && count == nonzero_part) {}
};

/// 16 flags, as bits of words.
struct Flags {
  unsigned word[words];

  /// Of a part of x; what is behind its end is false. Of a whole part words are loads, and without
  /// a condition: behind a branch each would wait for the one before.
  template <bool whole>
  static __device__ Flags load(const uint8_t* x, int turn, const Part& part) {
    const uint8_t* const from = x + part.begin;
    Flags flags{};
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const int at = word_begin(turn, w);
      if constexpr (whole) {
        flags.word[w] = true_bytes(*reinterpret_cast<const unsigned*>(from + at));
      } else {
#pragma unroll
        for (int i = 0; i < of_word; ++i)
          if (at + i < part.count && from[at + i] != 0) flags.word[w] |= 0x80U << (i * 8);
      }
    }
    return flags;
  }
  /// Of each word, in its byte: a warp's 128 fit.
  __device__ unsigned counts() const {
    unsigned each = 0;
#pragma unroll
    for (int w = 0; w < words; ++w) each |= __popc(word[w]) << (w * 8);
    return each;
  }
  __device__ bool at(int w, int i) const { return word[w] >> (i * 8) & 0x80U; }
};

/// The sum of a word's bytes.
__device__ unsigned sum_of_bytes(unsigned counts) { return __dp4a(counts, 0x01010101U, 0U); }

template <bool whole>
__device__ void load_part(const uint8_t* x, const Part& part, Flags (&flags)[turns]) {
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) flags[turn] = Flags::load<whole>(x, turn, part);
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

__global__ void __launch_bounds__(threads)
    count_kernel(const uint8_t* x, int64_t n, bool aligned, int64_t* counts) {
  const Part part(n, aligned);
  Flags flags[turns];
  if (part.whole) {
    load_part<true>(x, part, flags);
  } else {
    load_part<false>(x, part, flags);
  }
  let_next_launch_begin();
  unsigned count = 0;
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) count += sum_of_bytes(flags[turn].counts());
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

/// Elements by their place in the part.
struct Places {
  using Held = uint16_t;
  struct Raw {};
  __device__ void load(const Part&, int, unsigned, Raw&) const {}
  template <bool whole>
  __device__ Held value(const Part&, const Raw&, int place, int i) const {
    return static_cast<Held>(place + i);
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
  const U* x;
  U* to;

  /// Those of a word, on their way.
  struct alignas(std::min<size_t>(of_word * sizeof(U), 16)) Raw {
    unsigned at[sizeof(U)];
  };

  /// Those from `place` of a whole part on, if any of their flags is set.
  __device__ void load(const Part& part, int place, unsigned flags, Raw& raw) const {
    if (flags != 0) raw = device::load_once(reinterpret_cast<const Raw*>(x + part.begin + place));
  }
  template <bool whole>
  __device__ U value(const Part& part, const Raw& raw, int place, int i) const {
    if constexpr (whole) return reinterpret_cast<const U*>(raw.at)[i];
    return x[part.begin + place + i];
  }
  __device__ void store(int64_t i, int64_t, U value) const { to[i] = value; }
};

/// Whether registers of three blocks of a multiprocessor do: single bytes take many, as 64 bits do.
template <class Found>
constexpr bool fits_three() {
  constexpr size_t held = sizeof(typename Found::Held);
  return !std::is_same_v<Found, AllCoordinates<int64_t>> && held > 1 && held < 8;
}

/// What warps line up of a turn, and how much of each turn.
template <class Found>
struct LinedUp {
  int counts[warp];
  typename Found::Held of_warp[warps][warp * bytes];
};

/// Warps line what they have of a turn up in shared memory, and store it side by side.
template <bool whole, class Found>
__device__ void store_part(const uint8_t* x, const Part& part, int64_t begin_of_part,
                           const Found& found, LinedUp<Found>& lined_up) {
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int number = static_cast<int>(threadIdx.x) / warp;
  Flags flags[turns];
  load_part<whole>(x, part, flags);
  typename Found::Raw raw[2][words];  // of this turn and of the next
  const auto load = [&](int turn) {
    if constexpr (whole) {
#pragma unroll
      for (int w = 0; w < words; ++w)
        found.load(part, word_begin(turn, w), flags[turn].word[w], raw[turn % 2][w]);
    }
  };
  load(0);
  unsigned up_to[turns];  ///< of each word, in its byte
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) {
    up_to[turn] = sum_up_to(flags[turn].counts());
    if (lane == warp - 1)
      lined_up.counts[turn * warps + number] = static_cast<int>(sum_of_bytes(up_to[turn]));
  }
  __syncthreads();
  const int of_lane = lined_up.counts[lane];
  const int in_front = static_cast<int>(sum_up_to(of_lane)) - of_lane;
#pragma unroll
  for (int turn = 0; turn < turns; ++turn) {
    const unsigned of_words = __shfl_sync(all_lanes, up_to[turn], warp - 1);
    const unsigned here = up_to[turn] - flags[turn].counts();
    if (turn + 1 < turns) load(turn + 1);
    unsigned words_before = 0;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      unsigned at = words_before + (here >> (w * 8) & 0xffU);
#pragma unroll
      for (int i = 0; i < of_word; ++i)
        if (flags[turn].at(w, i))
          lined_up.of_warp[number][at++] =
              found.template value<whole>(part, raw[turn % 2][w], word_begin(turn, w), i);
      words_before += of_words >> (w * 8) & 0xffU;
    }
    __syncwarp();
    const int count = static_cast<int>(words_before);
    const int begin = __shfl_sync(all_lanes, in_front, turn * warps + number);
    for (int i = lane; i < count; i += warp)
      found.store(begin_of_part + begin + i, part.begin, lined_up.of_warp[number][i]);
    __syncwarp();
  }
}

template <class Found>
__global__ void __launch_bounds__(threads, fits_three<Found>() ? 3 : 2)
    store_kernel(const uint8_t* x, int64_t n, bool aligned, const int64_t* before, Found found) {
  __shared__ LinedUp<Found> lined_up;
  const Part part(n, aligned);
  const int64_t begin = before[blockIdx.x];
  if (part.whole) {
    store_part<true>(x, part, begin, found, lined_up);
  } else {
    store_part<false>(x, part, begin, found, lined_up);
  }
}

const uint8_t* flags_of(const Tensor& x) { return static_cast<const uint8_t*>(x.data()); }

/// A block a part.
unsigned parts_of(const Tensor& x) { return grid_of("nonzero", ceil_div(x.numel(), nonzero_part)); }

}  // namespace

void count_nonzero(const Tensor& x, const Tensor& before, Stream stream) {
  const unsigned parts = parts_of(x);
  int64_t* const counts = before.data<int64_t>();
  count_kernel<<<parts, threads, 0, native(stream)>>>(flags_of(x), x.numel(), aligned16(x), counts);
  BS_CUDA_CHECK_LAUNCH("nonzero");
  launch_early(sum_counts_kernel, 1, sum_threads, 0, stream, counts, int64_t{parts});
}

namespace {

template <class Found>
void store(const Tensor& flags, const Tensor& before, const Found& found, bool aligned,
           Stream stream) {
  store_kernel<<<parts_of(flags), threads, 0, native(stream)>>>(
      flags_of(flags), flags.numel(), aligned, before.data<int64_t>(), found);
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
