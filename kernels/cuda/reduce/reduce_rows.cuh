#pragma once
// Every result is taken in an order that depends on the shape and the GPU alone: blocks leave
// states, which the last of them merges in an order of their places; no element is added
// atomically.
#include <bs/kernels/cuda/reduce/reduce_states.cuh>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

/// What elements are computed in: bytes as i64.
template <class T>
struct TermOf {
  using type = device::wide<T>;
};
template <>
struct TermOf<uint8_t> {
  using type = int64_t;
};
template <class T>
using Term = typename TermOf<T>::type;

template <class T, int N>
__device__ void widen_terms(const device::Raw<T, N>& raw, Term<T> (&values)[N]) {
  if constexpr (!std::is_same_v<T, uint8_t>) {
    device::widen_pack<T, N>(raw, values);
  } else if constexpr (N == 1) {
    values[0] = raw.at[0];
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = (raw.at[i / 4] >> (i % 4 * 8)) & 0xffU;
  }
}

/// Adds a pack of neighbours, the first of them element `at`.
template <class T, int N, class State>
__device__ void add_raw(State& state, const device::Raw<T, N>& raw, int64_t at) {
  if constexpr (sizeof(T) == 1 && N % 4 == 0 && requires { state.add_words(raw.at); }) {
    state.add_words(raw.at);
  } else {
    Term<T> values[N];
    widen_terms<T, N>(raw, values);
    state.add_pack(values, at);
  }
}

/// The threads of a row are lanes of a warp, or all of the block; the first gets the whole.
template <class State>
__device__ void merge_row(State& state) {
  constexpr int warp = 32;
  if (blockDim.x < warp) {
    for (int offset = static_cast<int>(blockDim.x) / 2; offset > 0; offset /= 2)
      state.merge(from_lane(state, offset));
    return;
  }
  const auto within_warp = [&] {
#pragma unroll
    for (int offset = warp / 2; offset > 0; offset /= 2) state.merge(from_lane(state, offset));
  };
  within_warp();
  if (blockDim.x == warp) return;
  __shared__ alignas(16) unsigned char memory[warp * sizeof(State)];
  auto* const of_warp = reinterpret_cast<State*>(memory);
  const unsigned lane = threadIdx.x % warp;
  if (lane == 0) of_warp[threadIdx.x / warp] = state;
  __syncthreads();
  if (threadIdx.x >= warp) return;
  state = lane < blockDim.x / warp ? of_warp[lane] : State();
  within_warp();
}

/// Takes a result, rounded where y is of 16 bits, and meanwhile the states of its parts.
template <class State, class W>
struct Output {
  using Result = typename State::Result;
  void* results;
  DType dtype;  ///< theirs
  W scale;
  State* states = nullptr;        ///< of parts, where there are several
  State* of_rows = nullptr;       ///< states in place of results, if they are asked for
  int* done = nullptr;            ///< of a row's, for each blockIdx.x; zero before and after
  W* means = nullptr;             ///< for those of moments, if they are asked for
  void* values = nullptr;         ///< for what is at places, if it is asked for
  DType value_dtype = f32;        ///< theirs
  bool is_root = false;           ///< whether square roots are the results
  const void* numbers = nullptr;  ///< of results, for states that begin with one; of x's type

  /// What the state of a result begins with.
  template <class T>
  __device__ State begin(int64_t at) const {
    State state;
    if constexpr (requires { state.number; })
      state.number = device::widen(static_cast<const T*>(numbers)[at]);
    return state;
  }

  __device__ void store(int64_t at, const State& state) const {
    if constexpr (std::is_same_v<State, MomentState<W>>)
      if (means) means[at] = state.mean;
    if constexpr (requires { state.place; })
      if (values) put(values, value_dtype, at, state.best);
    Result result = state.result(scale);
    if constexpr (std::is_floating_point_v<Result>)
      if (is_root) result = sqrt(result);
    put(results, dtype, at, result);
  }
  template <class V>
  static __device__ void put(void* to, DType dtype, int64_t at, V value) {
    if constexpr (std::is_same_v<V, float>) {
      if (dtype == bf16) {
        static_cast<__nv_bfloat16*>(to)[at] = device::narrow<__nv_bfloat16>(value);
        return;
      }
      if (dtype == f16) {
        static_cast<__half*>(to)[at] = device::narrow<__half>(value);
        return;
      }
    }
    static_cast<V*>(to)[at] = value;
  }
  /// Whether this block has the last of the parts: then all states that were written can be read.
  __device__ bool has_last_part() const {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
      __threadfence();
      is_last = atomicAdd(done + blockIdx.x, 1) == static_cast<int>(gridDim.y) - 1;
      if (is_last) done[blockIdx.x] = 0;
    }
    __syncthreads();
    if (is_last) __threadfence();
    return is_last;
  }
};

/// Blocks of most threads that a multiprocessor works on at once: as many as leave all of a
/// thread's states in registers.
template <class T>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
inline constexpr int row_blocks = 1;  // where 64 registers are a few too few
#else
inline constexpr int row_blocks = sizeof(Term<T>) > 4 ? 1 : 2;
#endif

/// Packs that a thread has on their way, and is to have of a row. States of one number need little
/// arithmetic: more threads with fewer loads leave fewer lines of the L2 cache waiting for memory.
template <class State, class T>
inline constexpr unsigned row_packs = sizeof(State) > sizeof(Term<T>) ? 8 : 4;

/// Elements in front of the first whole pack of N, packs, and elements behind them.
template <class Count>
struct Stretch {
  unsigned head;
  Count packs;
  unsigned tail;

  template <int N, class T>
  static __device__ Stretch of(const T* x, int64_t count) {
    const unsigned before = reinterpret_cast<uintptr_t>(x) / sizeof(T) % N;
    const auto head = static_cast<unsigned>(min(count, int64_t{(N - before) % N}));
    const auto packs = static_cast<Count>((count - head) / N);
    return {head, packs, static_cast<unsigned>(count - head - packs * N)};
  }
};

/// Rows of n; blockDim.x threads a row, blockDim.y rows a block, of which there is one unless a
/// warp, or a part of it, does for a row. The gridDim.y blocks of a row take packs of it in turns:
/// stretches would be read at as many places of memory, which is slower. Rows begin and end on the
/// boundaries of packs, which 32 bits count, unless they have `ends`.
template <class State, int N, bool ends, class T>
__global__ void __launch_bounds__(most_row_threads, row_blocks<T>)
    rows_kernel(const T* x, int64_t rows, int64_t n, Output<State, Term<T>> output) {
  using Count = std::conditional_t<ends, int64_t, unsigned>;
  constexpr unsigned ahead = row_packs<State, T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t here = row < rows ? n : 0;
  Stretch<Count> of = {0, static_cast<Count>(here / N), 0};
  const State none = output.template begin<T>(row < rows ? row : 0);
  State state = none;
  if constexpr (ends) {
    const T* single = x + row * n;
    of = Stretch<Count>::template of<N>(single, here);
    const unsigned of_ends = blockIdx.y == 0 ? of.head + of.tail : 0;
#pragma unroll 2
    for (unsigned e = threadIdx.x; e < of_ends; e += blockDim.x) {
      const int64_t at = e < of.head ? e : e + of.packs * N;
      const device::Raw<T, 1> raw = {single[at]};
      State one = none;
      add_raw<T, 1>(one, raw, at);
      state.merge(one);
    }
  }
  const auto* from = reinterpret_cast<const device::Raw<T, N>*>(x + row * n + of.head);
  State packs = none;
  const unsigned by = blockDim.x * gridDim.y;
  for (Count p = blockIdx.y * blockDim.x + threadIdx.x; p < of.packs; p += ahead * by) {
    device::Raw<T, N> raw[ahead];
#pragma unroll
    for (unsigned k = 0; k < ahead; ++k)
      if (p + k * by < of.packs) raw[k] = device::load_once(from + p + k * by);
#pragma unroll
    for (unsigned k = 0; k < ahead; ++k) {
      if (p + k * by >= of.packs) break;
      add_raw<T, N>(packs, raw[k], of.head + int64_t{p + k * by} * N);
    }
  }
  if constexpr (ends) {
    state.merge(packs);
  } else {
    state = packs;
  }
  merge_row(state);
  if (output.states) {
    State* const states = output.states + row * gridDim.y;
    if (threadIdx.x == 0) states[blockIdx.y] = state;
    if (!output.has_last_part()) return;
    state = State();
    for (unsigned part = threadIdx.x; part < gridDim.y; part += blockDim.x)
      state.merge(states[part]);
    merge_row(state);
  }
  if (threadIdx.x != 0 || row >= rows) return;
  if constexpr (requires { state.template find<N>(x, n); }) state.template find<N>(x + row * n, n);
  if (output.of_rows) {
    output.of_rows[row] = state;
  } else {
    output.store(row, state);
  }
}

}  // namespace bs::cuda
