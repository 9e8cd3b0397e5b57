#pragma once
// How threads walk images for channel_norm.h, forward and backward.
//
// Channels-last rows: a block's threads lie over whole rows, so that it reads memory in one
// stretch; each thread keeps N neighbouring channels and what belongs to them in registers. Planes:
// threads lie along a plane, and what belongs to it is the same for all of them.
#include <bs/kernels/channel_norm.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/reduce/reduce_states.cuh>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>
#include <bit>

namespace bs::cuda {

inline constexpr int channel_threads = 256;

/// Where the threads of a launch are. A block has `width` threads side by side, over packs of a row
/// or along a plane, and `lines` of these; a part of the axis n has `length` elements.
struct ChannelGrid {
  unsigned outer = 0, inner = 0, parts = 0;
  bool sets_are_channels = true;
  Divisor channels, neighbours;
  int64_t n = 0, length = 0;
  bool in_turns = false;  ///< parts of rows take the lines of a block in turns
  dim3 grid = {}, block = {};

  __device__ unsigned channel_of(unsigned slot) const {
    return slot - channels.divide(slot) * channels.number;
  }
  __device__ unsigned set_of(unsigned slot) const {
    return sets_are_channels ? channel_of(slot) : neighbours.divide(slot);
  }
};

/// What becomes of parts: states of those that are merged cost a pass of their own.
enum class ChannelParts { merged, apart };

/// Threads along a plane of so many packs. Those of parts that are merged have eight packs each, so
/// that merging is little beside them, or less where planes are too few to keep the GPU busy.
/// Others have four, in whole warps.
inline int64_t plane_width(int64_t planes, int64_t packs, ChannelParts kind, Device device) {
  constexpr int64_t warp = 32, busy = 1024;  // threads that keep a multiprocessor so
  const int64_t wanted = busy * device_properties(device).multiprocessors;
  const bool merged = kind == ChannelParts::merged;
  const int64_t each = merged ? 8 : 4;
  int64_t width = merged ? 8 : warp;
  while (width < channel_threads &&
         (width * each < packs || (width < warp && planes * width < wanted)))
    width *= 2;
  return width;
}

/// Blocks for `most` of them on a multiprocessor. Parts that are merged have at least 32 rows,
/// others eight packs a thread; those of a plane have 4096 elements.
inline ChannelGrid channel_grid(const ChannelSlots& s, int N, int most, ChannelParts kind,
                                Device device) {
  ChannelGrid g{.outer = static_cast<unsigned>(s.outer),
                .inner = static_cast<unsigned>(s.inner),
                .sets_are_channels = s.neighbours == 0,
                .channels = Divisor(s.channels),
                .neighbours = Divisor(std::max<int64_t>(s.neighbours, 1)),
                .n = s.n};
  const bool rows = s.inner > 1;
  BS_CHECK(s.n < int64_t{1} << 32, "channel_norm: {} rows are more than 32 bits count", s.n);
  const int64_t packs = rows ? s.inner / N : ceil_div(s.n, N);
  const int64_t groups = rows ? ceil_div(packs, channel_threads) : 1;
  int64_t width = ceil_div(packs, groups);
  if (!rows) width = plane_width(s.outer, packs, kind, device);
  const int64_t lines = channel_threads / width;
  const int64_t blocks = rows ? s.outer * groups : ceil_div(s.outer, lines);
  const int64_t least_rows =
      kind == ChannelParts::merged ? std::max<int64_t>(32, 4 * lines) : 8 * lines;
  const int64_t least = rows ? least_rows : std::max<int64_t>(4096, 8 * width * N);
  const int64_t room = int64_t{device_properties(device).multiprocessors} * most;
  const int64_t parts = std::clamp<int64_t>(s.n / least, 1, std::max<int64_t>(room / blocks, 1));
  g.length = round_up(ceil_div(s.n, parts), rows ? 1 : 16);
  g.in_turns = kind == ChannelParts::apart;
  g.parts = static_cast<unsigned>(ceil_div(s.n, g.length));
  g.block = dim3(static_cast<unsigned>(width), static_cast<unsigned>(lines));
  g.grid = dim3(grid_of("channel_norm", rows ? s.outer * g.parts : blocks),
                static_cast<unsigned>(rows ? groups : g.parts));
  return g;
}

/// How many blocks of a kernel a multiprocessor has room for: more would come in a second wave,
/// which leaves most of the GPU idle at its end.
template <class Kernel>
int channel_blocks(Kernel* kernel) {
  int blocks = 1;
  BS_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, channel_threads, 0));
  return std::max(blocks, 1);
}

/// As many blocks for a kernel of which each thread first finds out about its channels: so few that
/// this is little beside what follows, and enough that they do not all end at once.
template <class Kernel>
int channel_blocks_in_turns(Kernel* kernel) {
  return 2 * channel_blocks(kernel);
}

/// A thread's share of a part: `count` packs, `step` elements apart, from element `first` on; slots
/// from `slot` on, as many as a pack has elements, or one. None where it has nothing to do.
template <int N, bool rows>
struct ChannelShare {
  int64_t first = 0;
  unsigned slot = 0, part = 0, count = 0;
  int64_t step = 0;
  bool any = false;  ///< whether the slots exist

  __device__ explicit ChannelShare(const ChannelGrid& g) {
    if constexpr (rows) {
      const unsigned o = blockIdx.x / g.parts;
      part = blockIdx.x - o * g.parts;
      const unsigned column = (blockIdx.y * blockDim.x + threadIdx.x) * N;
      any = column < g.inner;
      if (!any) return;
      slot = o * g.inner + column;
      const int64_t begin = (g.in_turns ? blockDim.y : g.length) * part;
      const int64_t left = g.n - begin, size = g.in_turns || left < g.length ? left : g.length;
      const unsigned lines = blockDim.y * (g.in_turns ? g.parts : 1);
      first = (o * g.n + begin + threadIdx.y) * g.inner + column;
      step = int64_t{lines} * g.inner;
      count = size > threadIdx.y ? (static_cast<unsigned>(size) - threadIdx.y - 1) / lines + 1 : 0;
    } else {
      slot = blockIdx.x * blockDim.y + threadIdx.y;
      part = blockIdx.y;
      any = slot < g.outer;
      if (!any) return;
      const int64_t begin = part * g.length;
      const auto packs =
          static_cast<unsigned>((g.n - begin < g.length ? g.n - begin : g.length) / N);
      first = slot * g.n + begin + int64_t{threadIdx.x} * N;
      step = int64_t{blockDim.x} * N;
      count = packs > threadIdx.x ? (packs - threadIdx.x - 1) / blockDim.x + 1 : 0;
    }
  }
};

/// A vector of the channels, of T or of what T is computed in; null where it is left out.
template <class T>
struct ChannelVector {
  using W = device::wide<T>;
  const void* data = nullptr;
  bool is_wide = false;

  ChannelVector() = default;
  explicit ChannelVector(const Tensor& t)
      : data(t.defined() ? t.data() : nullptr), is_wide(t.defined() && t.dtype() == dtype_of<W>) {}
  /// K neighbours from channel `first` on.
  template <int K>
  __device__ void load(unsigned first, W absent, W (&to)[K]) const {
#pragma unroll
    for (int k = 0; k < K; ++k) to[k] = absent;
    if (!data) return;
    if (is_wide) {
#pragma unroll
      for (int k = 0; k < K; ++k) to[k] = static_cast<const W*>(data)[first + k];
    } else {
#pragma unroll
      for (int k = 0; k < K; ++k) to[k] = device::widen(static_cast<const T*>(data)[first + k]);
    }
  }
  __device__ W at(unsigned channel, W absent) const {
    W one[1];
    load(channel, absent, one);
    return one[0];
  }
};

/// What a thread reads of its channels.
template <class T>
struct ChannelVectors {
  const device::wide<T>*mean, *rstd;
  ChannelVector<T> weight, bias;

  explicit ChannelVectors(const ChannelNorm& norm)
      : mean(pointer<device::wide<T>>(norm.mean)),
        rstd(pointer<device::wide<T>>(norm.rstd)),
        weight(norm.weight),
        bias(norm.bias) {}
};

/// z = (x - mean) scale + shift for K slots from `slot` on. Of elements of 16 bits as x scale +
/// shift: the mean's part is as exact in f32 as 2^13 times what an element is rounded by.
template <class T, int K>
struct ChannelAffine {
  using W = device::wide<T>;
  static constexpr bool is_joined = sizeof(T) < sizeof(W);
  W mean[K], scale[K], shift[K];

  __device__ ChannelAffine(const ChannelGrid& g, const ChannelVectors<T>& v, unsigned slot) {
    const unsigned first = g.channel_of(slot);  // a row is whole packs
    v.weight.load(first, W(1), scale);
    v.bias.load(first, W(0), shift);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const unsigned set = g.sets_are_channels ? first + k : g.neighbours.divide(slot + k);
      mean[k] = v.mean[set];
      scale[k] *= v.rstd[set];
      if (is_joined) shift[k] -= mean[k] * scale[k];
    }
  }
  __device__ W z(W x, int i) const {
    const int k = K == 1 ? 0 : i;
    return (is_joined ? x : x - mean[k]) * scale[k] + shift[k];
  }
};

/// Calls f(Type<D>, N, rows) with the kind of kernel: packs of 16 bytes where they lie in one row
/// or in one plane, else single elements.
template <class F>
void visit_channels(const char* op, const ChannelSlots& s, DType dtype, bool aligned, F&& f) {
  visit_floating(op, dtype, [&]<class T>(Type<T>) {
    visit_pack<T>(aligned, s.inner > 1 ? s.inner : s.n, [&]<int N>(std::integral_constant<int, N>) {
      if (s.inner > 1) {
        f(Type<T>{}, std::integral_constant<int, N>{}, std::true_type{});
      } else {
        f(Type<T>{}, std::integral_constant<int, N>{}, std::false_type{});
      }
    });
  });
}

/// Merges the K states of each of a block's threads with those of the threads that have the same
/// slots, in a fixed order. Of rows these lie on all lines; the whole is on the first.
template <class State, int K>
__device__ void merge_lines(State (&states)[K]) {
  __shared__ alignas(16) unsigned char memory[K * channel_threads * sizeof(State)];
  auto* const shared = reinterpret_cast<State*>(memory);
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int k = 0; k < K; ++k) shared[k * channel_threads + thread] = states[k];
  for (unsigned size = blockDim.y; size > 1;) {
    const unsigned half = (size + 1) / 2;
    __syncthreads();
    if (threadIdx.y + half < size) {
#pragma unroll
      for (int k = 0; k < K; ++k)
        shared[k * channel_threads + thread].merge(
            shared[k * channel_threads + thread + half * blockDim.x]);
    }
    size = half;
  }
#pragma unroll
  for (int k = 0; k < K; ++k) states[k] = shared[k * channel_threads + thread];
}

/// Of planes they lie side by side in a line, a power of two of them; the line's first thread has
/// the whole.
template <class State>
__device__ void merge_along_line(State& state) {
  constexpr unsigned warp = 32;
  for (unsigned offset = min(warp, blockDim.x) / 2; offset > 0; offset /= 2)
    state.merge(from_lane(state, static_cast<int>(offset)));
  const unsigned warps = blockDim.x / warp;
  if (warps <= 1) return;
  __shared__ alignas(16) unsigned char memory[channel_threads / warp * sizeof(State)];
  auto* const of_warp = reinterpret_cast<State*>(memory) + threadIdx.y * warps;
  if (threadIdx.x % warp == 0) of_warp[threadIdx.x / warp] = state;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (unsigned other = 1; other < warps; ++other) state.merge(of_warp[other]);
}

template <bool rows, class State, int K>
__device__ void merge_channel_states(State (&states)[K]) {
  if constexpr (rows) {
    merge_lines(states);
  } else {
    merge_along_line(states[0]);
  }
}

inline constexpr unsigned merge_threads = 512;

/// Lists of partial states, [outer, parts, inner] of them, that one result is merged of.
struct ChannelLists {
  unsigned results, slots_of_result;
  Divisor parts, inner;
  unsigned channels, neighbours;
  unsigned slices;  ///< threads that share the merging of a result: a power of two

  __host__ __device__ unsigned results_of_block() const { return merge_threads / slices; }

  /// Calls f(slot, part, place of the state) for every `slices`-th state of a result from `slice`,
  /// `ahead` of them at a time.
  template <int ahead, class F>
  __device__ void for_each(unsigned result, unsigned slice, unsigned slices, F&& f) const {
    const unsigned count = slots_of_result * parts.number;
#pragma unroll ahead
    for (unsigned j = slice; j < count; j += slices) {
      const unsigned i = parts.divide(j), part = j - i * parts.number;
      const unsigned slot = neighbours > 0 ? result * neighbours + i : i * channels + result;
      const unsigned o = inner.divide(slot);
      f(slot, part, (int64_t{o} * parts.number + part) * inner.number + (slot - o * inner.number));
    }
  }
};

/// The lists of sets, or of channels.
inline ChannelLists channel_lists(const ChannelSlots& s, const ChannelGrid& g, bool of_channels) {
  const int64_t neighbours = of_channels ? 0 : s.neighbours;
  const int64_t results = neighbours > 0 ? s.sets() : s.channels;
  const int64_t slots = s.slots() / results;
  constexpr int64_t states_of_thread = 4, most_slices = 256;
  const int64_t slices = std::clamp<int64_t>(slots * g.parts / states_of_thread, 1, most_slices);
  return {static_cast<unsigned>(results),
          static_cast<unsigned>(slots),
          Divisor(g.parts),
          Divisor(g.inner),
          static_cast<unsigned>(s.channels),
          static_cast<unsigned>(neighbours),
          std::bit_floor(static_cast<unsigned>(slices))};
}

/// Merges this block's lists; thread i < results_of_block() has the whole of result i of the block.
/// add(state, slot, part, place) adds one state.
template <class State, class Add>
__device__ State merge_lists(const ChannelLists& lists, Add&& add) {
  const unsigned slices = lists.slices, results = lists.results_of_block();
  __shared__ alignas(16) unsigned char memory[merge_threads * sizeof(State)];
  auto* const shared = reinterpret_cast<State*>(memory);
  // Threads that are side by side read what lies side by side.
  const bool across = lists.neighbours == 0;
  const unsigned t = threadIdx.x;
  const unsigned local = across ? t % results : t / slices;
  const unsigned slice = across ? t / results : t % slices;
  const unsigned result = blockIdx.x * results + local;
  State state;
  constexpr int ahead = sizeof(State) < 16 ? 4 : 1;  // in registers
  if (result < lists.results)
    lists.for_each<ahead>(result, slice, slices, [&](unsigned slot, unsigned part, int64_t place) {
      add(state, slot, part, place);
    });
  shared[slice * results + local] = state;
  for (unsigned half = slices / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half * results) shared[t].merge(shared[t + half * results]);
  }
  __syncthreads();
  return shared[t % results];
}

}  // namespace bs::cuda
