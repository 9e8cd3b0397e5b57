#pragma once
// Runs a function of elements over operands of any strides. Where the innermost axis allows it,
// threads load and store vectors of 16 bytes; broadcasts along it are read once a vector. Inputs
// that lie across the result are turned in shared memory on their way.
#include <bs/kernels/copy.h>
#include <bs/kernels/operand.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/square.cuh>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace bs::cuda {

/// An input as kernels read it: an array, or where there is none, one number. Every thread of a
/// launch takes the same side of a branch on it. The only input of a function is an array.
template <class T>
struct Source {
  using Element = T;
  using W = device::wide<T>;
  const T* data;
  W number;
  bool repeats;  ///< along the innermost axis

  /// N neighbours as they lie in memory; of one number nothing.
  template <int N, bool is_only = false>
  __device__ device::Raw<T, N> load(int32_t at) const {
    using Raw = device::Raw<T, N>;
    if (!is_only && !data) return Raw{};
    if (!repeats) return *reinterpret_cast<const Raw*>(data + at);
    device::Pack<T, N> all;
    const T value = data[at];
#pragma unroll
    for (int i = 0; i < N; ++i) all.at[i] = value;
    return reinterpret_cast<const Raw&>(all);
  }
  template <int N, bool is_only = false>
  __device__ void widen(const device::Raw<T, N>& raw, W (&values)[N]) const {
    device::widen_pack<T, N>(raw, values);
    if constexpr (!is_only) {
      if (data) return;
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = number;
    }
  }
  /// Four bools of a pack.
  template <int N>
  __device__ uint32_t word(const device::Raw<T, N>& raw, int i) const {
    return data ? raw.at[i] : number * 0x01010101U;
  }
  __device__ W read(int64_t at) const {
    return data ? device::widen(data[repeats ? 0 : at]) : number;
  }
};

namespace detail {

/// The same for an array that lies as the result does. A kernel without choices is half as long,
/// and of a launch of a few KB the first instructions, which come from memory, are what it waits
/// for: an addition of 16 to 800 KB takes .95 of its time.
template <class T>
struct DenseSource {
  using Element = T;
  using W = device::wide<T>;
  const T* data;

  template <int N, bool = false>
  __device__ device::Raw<T, N> load(int32_t at) const {
    return *reinterpret_cast<const device::Raw<T, N>*>(data + at);
  }
  template <int N, bool = false>
  __device__ void widen(const device::Raw<T, N>& raw, W (&values)[N]) const {
    device::widen_pack<T, N>(raw, values);
  }
  template <int N>
  __device__ uint32_t word(const device::Raw<T, N>& raw, int i) const {
    return raw.at[i];
  }
  __device__ W read(int64_t at) const { return device::widen(data[at]); }
};
/// Where M such tensors stand at an item of N elements.
template <int M, int N>
struct DenseWalk {
  __device__ void locate(uint32_t i, int32_t (&at)[M]) const {
#pragma unroll
    for (int n = 0; n < M; ++n) at[n] = static_cast<int32_t>(i * N);
  }
};

template <class T>
Source<device_type<T>> source(const Tensor& x) {
  return {pointer<T>(x), {}, false};
}
template <class T>
Source<device_type<T>> source(const Operand& x) {
  using W = device::wide<device_type<T>>;
  if (!x.tensor.defined()) return {nullptr, x.number.to<W>(), false};
  return source<T>(x.tensor);
}

inline Strides strides_over(const Tensor& x, int) { return x.strides(); }
inline Strides strides_over(const Operand& x, int rank) { return x.strides(rank); }

/// Threads of a block. Where nothing is loaded blocks are over so soon that fewer of them are
/// faster.
template <size_t inputs>
inline constexpr int map_threads = inputs == 0 ? 256 : 128;
inline constexpr int turn_threads = 256;

/// Elements of a vector of squares: 16 bytes of the smallest type, but at most 32 of the largest.
template <class... T>
inline constexpr int map_pack = std::min(16 / static_cast<int>(std::min({sizeof(T)...})),
                                         32 / static_cast<int>(std::max({sizeof(T)...})));

/// Whether f computes bools four at a time too, by f.words(uint32_t...).
template <int N, class F, class R, class... T>
inline constexpr bool in_words = N % 16 == 0 && std::is_same_v<R, bool> &&
                                 (std::is_same_v<T, bool> && ...) &&
                                 requires(const F& f, const T&... x) {
  f.words(uint32_t{x}...);
};

/// Whether f is f.near(x..., holds) for most arguments, and f.beyond(x...) for those that clear
/// `holds`.
template <class F, class... W>
inline constexpr bool has_beyond = requires(const F& f, W... x, bool& holds) {
  f.near(x..., holds);
};
/// The same number, of which the compiler keeps nothing that it has computed before.
__device__ inline float again(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
__device__ inline double again(double x) {
  asm volatile("" : "+d"(x));
  return x;
}
template <class F, class... W>
__device__ auto map_one(const F& f, W... x) {
  if constexpr (has_beyond<F, W...>) {
    bool holds = true;
    const auto y = f.near(x..., holds);
    return holds ? y : f.beyond(x...);
  } else {
    return f(x...);
  }
}

template <int N, class F, class R, class... S, size_t... I>
__device__ void map_pack_at(const F& f, R* y,
                            const std::tuple<device::Raw<typename S::Element, N>...>& in,
                            std::index_sequence<I...>, const S&... x) {
  if constexpr (in_words<N, F, R, typename S::Element...>) {
    device::Raw<R, N> words;
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      words.at[i] = f.words(x.template word<N>(std::get<I>(in), i)...);
    *reinterpret_cast<device::Raw<R, N>*>(y) = words;
    return;
  }
  constexpr bool is_only = sizeof...(S) == 1;
  std::tuple<device::Pack<typename S::W, N>...> wide;
  (x.template widen<N, is_only>(std::get<I>(in), std::get<I>(wide).at), ...);
  device::wide<R> values[N];
  if constexpr (has_beyond<F, typename S::W...>) {
    bool all = true;  // one branch for all: behind one each they would be computed in turns
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = f.near(std::get<I>(wide).at[i]..., all);
    if (!all)
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = map_one(f, again(std::get<I>(wide).at[i])...);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = f(std::get<I>(wide).at[i]...);
  }
  const auto out = device::narrow_pack<R, N>(values);
  *reinterpret_cast<device::Raw<R, N>*>(y) = reinterpret_cast<const device::Raw<R, N>&>(out);
}

/// `count` items of N elements, U of them a thread, loaded before the first is computed; then the
/// `rest` elements behind them, where there is one axis.
template <int N, int U, class F, class Places, class R, class... S>
__global__ void __launch_bounds__(map_threads<sizeof...(S)>)
    map_kernel(const F f, const __grid_constant__ Places walk, R* y, uint32_t count, uint32_t rest,
               const S... x) {
  constexpr int M = sizeof...(S) + 1, threads = map_threads<sizeof...(S)>;
  constexpr bool is_only = M == 2;
  const uint32_t first = blockIdx.x * (threads * U) + threadIdx.x;
  const auto map_rest = [&](uint32_t i) {
    if (N == 1 || i >= rest) return;
    const int64_t at = int64_t{count} * N + i;
    y[at] = device::narrow<R>(map_one(f, x.read(at)...));
  };
  [&]<size_t... I>(std::index_sequence<I...> sequence) {
    int32_t at[U][M];
    std::tuple<device::Raw<typename S::Element, N>...> in[U];
    const auto load = [&](int u) {
      walk.locate(first + u * threads, at[u]);
      ((std::get<I>(in[u]) = x.template load<N, is_only>(at[u][I + 1])), ...);
    };
    const auto store = [&](int u) { map_pack_at<N>(f, y + at[u][0], in[u], sequence, x...); };
    if constexpr (U == 1) {
      if (first < count) {
        load(0);
        store(0);
      } else {
        map_rest(first - count);
      }
    } else {
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (first + u * threads < count) load(u);
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (const uint32_t i = first + u * threads; i < count) {
          store(u);
        } else {
          map_rest(i - count);
        }
    }
  }
  (std::index_sequence_for<S...>{});
}

/// Whether tensor n can be accessed in vectors of N along the innermost axis, or repeats along it.
template <int N, int M, class T>
bool packable(const StridedLoop<M>& loop, int n, const T* data) {
  if (data == nullptr) return true;
  if (loop.inner_stride(n) == 0) return n > 0;
  if (loop.inner_stride(n) != 1) return false;
  bool even = reinterpret_cast<uintptr_t>(data) % std::min<size_t>(16, N * sizeof(T)) == 0;
  for (int axis = 0; axis < loop.rank - 1; ++axis) even = even && loop.strides[n][axis] % N == 0;
  return even;
}

template <int N, int U, class F, class Places, class R, class... S>
void launch_map(const F& f, int64_t total, const Places& walk, R* y, Stream stream, const S&... x) {
  const int64_t count = total / N, rest = total - count * N;
  constexpr int threads = map_threads<sizeof...(S)>;
  const auto grid =
      static_cast<unsigned>(std::max<int64_t>(ceil_div(count + rest, threads * U), 1));
  map_kernel<N, U><<<grid, threads, 0, native(stream)>>>(f, walk, y, static_cast<uint32_t>(count),
                                                         static_cast<uint32_t>(rest), x...);
}

template <class F, class R, class... T>
void launch_part(const F& f, const StridedLoop<sizeof...(T) + 1>& loop, R* y, Stream stream,
                 Source<T>... x) {
  // 16 bytes of the largest type are a vector: more would be stored in halves of sectors. A thread
  // has one; of two mixed types two, as the other's vectors are shorter. Three inputs, which hardly
  // store beside what they load, have vectors as long as the smallest type's.
  constexpr bool several = sizeof...(T) > 2;
  constexpr size_t largest = std::max({sizeof(R), sizeof(T)...});
  constexpr int M = sizeof...(T) + 1,
                N = several ? map_pack<R, T...> : 16 / static_cast<int>(largest);
  constexpr int U = several || std::min({sizeof(R), sizeof(T)...}) == largest ? 1 : 2;
  bool packed = (loop.rank == 1 || loop.inner() % N == 0) && packable<N>(loop, 0, y);
  bool dense = loop.rank == 1;
  int n = 0;
  const auto look_at = [&](auto& source) {
    packed = packed && packable<N>(loop, ++n, source.data);
    source.repeats = source.data && loop.inner_stride(n) == 0;
    dense = dense && source.data && !source.repeats;
  };
  (look_at(x), ...);
  if (!packed)
    return launch_map<1, 4>(f, loop.numel(), Walk<M>(near_repeats(loop), 1), y, stream, x...);
  // Three inputs stay with the walk: `where` takes 3 % longer without it, and why was not found.
  if constexpr (U == 1 && !several)
    if (dense)
      return launch_map<N, U>(f, loop.numel(), DenseWalk<M, N>{}, y, stream,
                              DenseSource<T>{x.data}...);
  launch_map<N, U>(f, loop.numel(), Walk<M>(near_repeats(loop), N), y, stream, x...);
}

/// Elements that squares are made of. Others are turned by a copy first.
template <class T>
inline constexpr bool in_squares = sizeof(T) == 2 || sizeof(T) == 4;

/// An input of a square of the result, of which a thread takes N neighbours at a time.
template <class T, int N, int M>
struct TurnedInput {
  const Source<T>& x;
  const Turn<M>& turn;
  int n;
  Square<T> square;

  /// The only input always does. Kernels that know so keep no registers for vectors of others.
  __device__ bool across() const { return in_squares<T> && (M == 2 || turn.across[n]); }
  __device__ void load(const typename Turn<M>::Tile& tile, unsigned line, unsigned column,
                       device::Raw<T, N>& raw) const {
    if (across()) return;
    const auto moved = static_cast<int32_t>(x.repeats ? 0 : tile.x + column);
    raw = x.template load<N>(tile.at[n] + turn.line(n, tile.y + line) + moved);
  }
  __device__ void fill_square(const typename Turn<M>::Tile& tile) const {
    if constexpr (in_squares<T>)
      if (across()) square.fill(x.data + tile.at[n], turn, n, tile.x, tile.y);
  }
  __device__ void read_square(unsigned line, unsigned column, device::Raw<T, N>& raw) const {
    if constexpr (in_squares<T>)
      if (across()) raw = square.template read<N>(line, column);
  }
};

/// Blocks of squares that a multiprocessor holds, where functions that call others would spill for
/// more; else 0, which leaves it to the compiler.
template <class F, class... T>
inline constexpr int turned_blocks = sizeof...(T) == 1 && has_beyond<F, device::wide<T>...> ? 6 : 0;

/// A block a square of the result. What lies across goes through shared memory, one input after the
/// other, while vectors of the other inputs are on their way.
template <int N, class F, class R, class... T>
__global__ void __launch_bounds__(turn_threads, turned_blocks<F, T...>)
    map_turned_kernel(const F f, const __grid_constant__ Turn<sizeof...(T) + 1> turn, R* y,
                      const Source<T>... x) {
  constexpr int M = sizeof...(T) + 1;
  constexpr unsigned lanes = turn_edge / N, lines = turn_threads / lanes, steps = turn_edge / lines;
  extern __shared__ uint4 squares[];
  [&]<size_t... I>(std::index_sequence<I...> sequence) {
    const auto tile = turn.tile(blockIdx.x);
    const unsigned column = threadIdx.x % lanes * N, first = threadIdx.x / lanes;
    const auto inside = [&](unsigned line) {
      return tile.x + column < turn.nx && tile.y + line < turn.ny;
    };
    int used = 0;
    const auto next = [&](int n, int bytes) {
      const int at = used;
      used += turn.across[n] ? bytes : 0;
      return reinterpret_cast<char*>(squares) + at;
    };
    const std::tuple<TurnedInput<T, N, M>...> inputs{
        TurnedInput<T, N, M>{x, turn, I + 1, Square<T>(next(I + 1, Square<T>::bytes))}...};
    std::tuple<device::Raw<T, N>...> in[steps];
#pragma unroll
    for (unsigned s = 0; s < steps; ++s)
      if (const unsigned line = first + s * lines; inside(line))
        (std::get<I>(inputs).load(tile, line, column, std::get<I>(in[s])), ...);
    (std::get<I>(inputs).fill_square(tile), ...);
    __syncthreads();
#pragma unroll
    for (unsigned s = 0; s < steps; ++s) {
      const unsigned line = first + s * lines;
      if (!inside(line)) continue;
      (std::get<I>(inputs).read_square(line, column, std::get<I>(in[s])), ...);
      map_pack_at<N>(
          f, y + tile.at[0] + turn.line(0, tile.y + line) + static_cast<int>(tile.x + column),
          in[s], sequence, x...);
    }
  }
  (std::index_sequence_for<T...>{});
}

/// Runs f over inputs of which some lie across the result, where lines of all are whole vectors;
/// says whether it has.
template <class F, class R, class... T>
bool launch_turned(const F& f, const StridedLoop<sizeof...(T) + 1>& loop, R* y, Stream stream,
                   Source<T>... x) {
  constexpr int N = std::min(map_pack<R, T...>, device::pack_size<R>), M = sizeof...(T) + 1;
  if constexpr (std::max({sizeof(R), sizeof(T)...}) > 4) {
    return false;
  } else {
    Turn<M> turn;
    if (!find_turn(loop, turn) || turn.nx % N != 0 || turn.ny % N != 0) return false;
    bool whole = turn.template has_vectors<N>(0, y);
    int n = 0, bytes = 0;
    const auto look_at = [&]<class S>(Source<S>& source) {
      ++n;
      source.repeats = source.data && loop.inner_stride(n) == 0;
      if (!source.data) return;
      whole = whole && (source.repeats || turn.template has_vectors<N>(n, source.data)) &&
              (in_squares<S> || !turn.across[n]);
      if (turn.across[n]) bytes += Square<S>::bytes;
    };
    (look_at(x), ...);
    constexpr int most_bytes = 48 << 10;
    if (!whole || bytes > most_bytes) return false;
    map_turned_kernel<N, F, R, T...>
        <<<turn.tiles, turn_threads, static_cast<size_t>(bytes), native(stream)>>>(f, turn, y,
                                                                                   x...);
    return true;
  }
}

/// Whether the axis along which y lies densely is one that x strides over, while another lies
/// densely: its elements are then better turned in shared memory first.
inline bool is_turned(const Tensor& x, const Tensor& y) {
  constexpr int64_t few = 16;
  bool turned = false, other = false;
  for (int axis = 0; axis < y.rank(); ++axis) {
    if (x.strides()[axis] == 0) return false;
    if (x.size(axis) < few) continue;
    turned = turned || (y.strides()[axis] == 1 && x.strides()[axis] > 1);
    other = other || x.strides()[axis] == 1;
  }
  return turned && other;
}
inline Tensor in_order(const Tensor& x, const Tensor& y, Stream stream) {
  if (!is_turned(x, y)) return x;
  const Dims order = memory_order(y.strides());
  Dims back = order;
  for (int axis = 0; axis < order.rank(); ++axis) back[static_cast<int>(order[axis])] = axis;
  const Tensor dense = Tensor::empty_like(x.permute(order)).permute(back);
  copy(x, dense, stream);
  return dense;
}
inline Operand in_order(const Operand& x, const Tensor& y, Stream stream) {
  return x.tensor.defined() ? Operand(in_order(x.tensor, y, stream)) : x;
}

template <class... X>
auto loop_over(const Tensor& y, const X&... x) {
  return ordered_loop<sizeof...(X) + 1>(y.shape(), {y.strides(), strides_over(x, y.rank())...});
}

template <class R, class... T, int M, class F, class... X>
bool map_turned(const F& f, const StridedLoop<M>& loop, const Tensor& y, Stream stream,
                const X&... x) {
  return fits_32_bits(loop) && launch_turned(f, loop, pointer<R>(y), stream, source<T>(x)...);
}

template <class R, class... T, int M, class F, class... X>
void map_loop(const F& f, const StridedLoop<M>& loop, const Tensor& y, Stream stream,
              const X&... x) {
  const auto run = [&]<size_t... I>(std::index_sequence<I...>) {
    for_each_part(loop, {}, [&](const StridedLoop<M>& part, const Offsets<M>& from) {
      const auto moved = [](auto source, int64_t by) {
        if (source.data) source.data += by;
        return source;
      };
      launch_part(f, part, pointer<R>(y) + from[0], stream, moved(source<T>(x), from[I + 1])...);
    });
  };
  run(std::index_sequence_for<T...>{});
}

template <class R, class... T, class F, class... X>
void map_in_order(const F& f, const Tensor& y, Stream stream, const X&... x) {
  map_loop<R, T...>(f, loop_over(y, x...), y, stream, x...);
}

}  // namespace detail

/// y = f(x...) element by element, for tensors of any strides, expanded to y's shape, and Operands.
/// R and T are the element types of y and of the inputs; f takes wide values.
template <class R, class... T, class F, class... X>
void map(const char* op, const F& f, const Tensor& y, Stream stream, const X&... x) {
  const auto loop = detail::loop_over(y, x...);
  if (!lies_across(loop)) {
    detail::map_loop<R, T...>(f, loop, y, stream, x...);
  } else if (!detail::map_turned<R, T...>(f, loop, y, stream, x...)) {
    detail::map_in_order<R, T...>(f, y, stream, detail::in_order(x, y, stream)...);
  }
  BS_CUDA_CHECK_LAUNCH(op);
}

/// The same where the inputs are of y's element type too.
template <class T, class F, class... X>
void map_alike(const char* op, const F& f, const Tensor& y, Stream stream, const X&... x) {
  if constexpr (sizeof...(X) == 1) {
    map<T, T>(op, f, y, stream, x...);
  } else if constexpr (sizeof...(X) == 2) {
    map<T, T, T>(op, f, y, stream, x...);
  } else {
    map<T, T, T, T>(op, f, y, stream, x...);
  }
}

}  // namespace bs::cuda
