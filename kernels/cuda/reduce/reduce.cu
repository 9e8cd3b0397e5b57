#include <bs/kernels/cuda/work_counter.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/reduce/reduce_rows.cuh>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;
using device::widen;

constexpr int block_threads = 256;
constexpr int merge_threads = 1024;  // few blocks merge, so that each needs loads on their way
constexpr int warp = 32;

/// Blocks of columns that a multiprocessor works on at once.
template <class State, class T>
constexpr int column_blocks = sizeof(Term<T>) > 4 ? 2
                              : sizeof(State) > 4 ? 3
                                                  : 4;

/// Tells the states of N columns how large the elements of rows are that lie `by` apart, the first
/// of `left`.
template <class T, int N, class State, int rows>
__device__ void expect_rows(State (&states)[N], const Raw<T, N> (&raw)[rows], unsigned by,
                            unsigned left) {
  Term<T> most[N];
  widen_terms<T, N>(raw[0], most);
#pragma unroll
  for (int k = 1; k < rows; ++k) {
    if (k * by >= left) break;
    Term<T> values[N];
    widen_terms<T, N>(raw[k], values);
#pragma unroll
    for (int i = 0; i < N; ++i) most[i] = values[i] > most[i] ? values[i] : most[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) expect(states[i], most[i]);
}

/// Merges the states of N columns a thread over the threads below each other, of which a warp has
/// 32 / blockDim.x; calls f(column of the block, state).
template <int N, class State, class F>
__device__ void merge_columns(State (&states)[N], F&& f) {
  constexpr int most = std::max(1, (16 << 10) / static_cast<int>(block_threads * sizeof(State)));
  constexpr int together = std::min(N, static_cast<int>(std::bit_floor(unsigned{most})));
  constexpr unsigned warps = block_threads / warp;
  __shared__ alignas(16) unsigned char memory[together * block_threads * sizeof(State)];
  auto* const of_warps = reinterpret_cast<State*>(memory);
  const unsigned width = blockDim.x, thread = threadIdx.y * width + threadIdx.x;
  const unsigned lane = thread % warp, own = thread / warp;
  for (unsigned offset = warp / 2; offset >= width; offset /= 2)
#pragma unroll
    for (int i = 0; i < N; ++i) states[i].merge(from_lane(states[i], static_cast<int>(offset)));
#pragma unroll
  for (int first = 0; first < N; first += together) {
    if (first > 0) __syncthreads();
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (lane < width) of_warps[(i * warps + own) * width + lane] = states[first + i];
    __syncthreads();
    for (unsigned at = thread; at < together * width; at += block_threads) {
      const unsigned i = at / width, x = at - i * width;
      State state = of_warps[i * warps * width + x];
      for (unsigned w = 1; w < warps; ++w) state.merge(of_warps[(i * warps + w) * width + x]);
      f(x * N + first + i, state);
    }
  }
}

/// How the blocks of a matrix share its n rows: they begin `apart`, and each goes on to `length`
/// rows from there. Its blockDim.y threads take neighbours, the next ones `by` further on.
struct RowShares {
  unsigned parts, by;
  int64_t apart, length;

  /// Stretches for so many parts of so many lines of threads, or fewer. Stretches are read at as
  /// many places of memory; beyond some dozens that is slower than lines in turns.
  static RowShares of(int64_t n, int64_t parts, unsigned lines) {
    constexpr int64_t many = 64;
    const auto all = static_cast<unsigned>(parts);
    if (parts > many && n < int64_t{1} << 31) return {all, all * lines, lines, n};
    const int64_t length = ceil_div(n, parts);
    return {static_cast<unsigned>(ceil_div(n, length)), lines, length, length};
  }
};

/// Share blockIdx.y of the rows of matrices [n, inner]; blockDim.x threads take N neighbouring
/// columns each.
template <class State, int N, class T>
__global__ void __launch_bounds__(block_threads, column_blocks<State, T>)
    columns_kernel(const T* x, int64_t n, int64_t inner, RowShares shares, int64_t groups,
                   Output<State, Term<T>> output) {
  constexpr int ahead = 4;  // loads on their way
  const int64_t matrix = blockIdx.x / groups;
  const int64_t first_column = blockIdx.x % groups * blockDim.x * N;
  const int64_t column = first_column + threadIdx.x * N;
  const int64_t begin = blockIdx.y * shares.apart;
  const unsigned by = shares.by;
  State states[N];
  if (column < inner) {
#pragma unroll
    for (int i = 0; i < N; ++i) states[i] = output.template begin<T>(matrix * inner + column + i);
    const T* from = x + (matrix * n + begin + threadIdx.y) * inner + column;
    const int64_t step = by * inner;
    // 32 bits count them: stretches of many rows are many, and lines in turns are of few rows.
    const auto here = static_cast<unsigned>(min(n - begin, shares.length));
    Term<T> seen = 0;
    Raw<T, N> raw[ahead], next[ahead];
    const auto load = [&](unsigned row, Raw<T, N>(&rows)[ahead]) {
#pragma unroll
      for (int k = 0; k < ahead; ++k, from += step)
        if (row + k * by < here)
          rows[k] = device::load_once(reinterpret_cast<const Raw<T, N>*>(from));
    };
    load(threadIdx.y, raw);
    for (unsigned r = threadIdx.y; r < here; r += ahead * by) {
      load(r + ahead * by, next);  // while these are added
      expect_rows<T, N>(states, raw, by, here - r);
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        if (r + k * by >= here) break;
        Term<T> values[N];
        widen_terms<T, N>(raw[k], values);
        seen += 1;
        Term<T> share = 0;
        if constexpr (std::is_floating_point_v<Term<T>>) share = device::reciprocal_of(seen);
#pragma unroll
        for (int i = 0; i < N; ++i) states[i].add(values[i], begin + r + k * by, share);
      }
#pragma unroll
      for (int k = 0; k < ahead; ++k) raw[k] = next[k];
    }
  }
  let_next_launch_begin();
  merge_columns(states, [&](unsigned x, const State& state) {
    if (first_column + x >= inner) return;
    if (output.states) {
      output.states[(matrix * gridDim.y + blockIdx.y) * inner + first_column + x] = state;
    } else {
      output.store(matrix * inner + first_column + x, state);
    }
  });
}

/// Rows of columns that are no whole packs, several to one row of packs: `left` are no whole one.
template <class T>
struct FoldedRows {
  int64_t of_row = 1;
  const T* rest = nullptr;
  unsigned left = 0;
};

/// Merges `parts` states of each result, `inner` apart: blockDim.x results a block, blockDim.y
/// threads for each; and the rows that are left.
template <class State, class T>
__global__ void __launch_bounds__(merge_threads, 1)
    parts_kernel(const State* states, int64_t results, int64_t parts, int64_t inner,
                 FoldedRows<T> rows, Output<State, Term<T>> output) {
  __shared__ alignas(16) unsigned char memory[merge_threads * sizeof(State)];
  auto* const shared = reinterpret_cast<State*>(memory);
  const int64_t result = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  State state;
  wait_for_previous_launch();
  if (result < results) {
    const State* from = states + result / inner * parts * inner + result % inner;
    constexpr int ahead = std::clamp(64 / static_cast<int>(sizeof(State)), 1, 8);
    for (int64_t part = threadIdx.y; part < parts; part += ahead * blockDim.y) {
      State of[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (part + k * blockDim.y < parts) of[k] = from[(part + k * blockDim.y) * inner];
#pragma unroll
      for (int k = 0; k < ahead; ++k) state.merge(of[k]);
    }
    if (threadIdx.y < rows.left) {
      State one;
      add_raw<T, 1>(one, {rows.rest[threadIdx.y * inner + result]}, 0);
      state.merge(one);
    }
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  shared[thread] = state;
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) shared[thread].merge(shared[thread + half * blockDim.x]);
  }
  if (threadIdx.y == 0 && result < results) output.store(result, shared[thread]);
}

/// How many blocks share `n` items, where there are `blocks` times as many blocks in all, of which
/// a multiprocessor has `resident` at once: each has `least` of them or more. As few as fill the
/// GPU, and leave few multiprocessors idle at the end.
int64_t sharing_blocks(int64_t n, int64_t blocks, int64_t least, int resident, Device device) {
  constexpr int64_t most_parts = 65535;  // of the grid's second axis
  const int64_t at_once = int64_t{device_properties(device).multiprocessors} * resident;
  const auto busy = [&](int64_t parts) {
    const int64_t all = blocks * parts;
    return static_cast<double>(all) / static_cast<double>(ceil_div(all, at_once) * at_once);
  };
  const int64_t most = std::min(most_parts, std::max<int64_t>(1, n / least));
  constexpr double worth_another = 1.03;
  int64_t parts = 1;
  for (const int64_t fill_once_or_twice : {at_once / blocks, 2 * at_once / blocks}) {
    const int64_t more = std::clamp<int64_t>(fill_once_or_twice, 1, most);
    if (busy(more) > worth_another * busy(parts)) parts = more;
  }
  return parts;
}

/// Room for so many states.
template <class State>
Tensor memory_of(int64_t states, Device device) {
  return Tensor::empty({states * static_cast<int64_t>(sizeof(State))}, u8, device);
}

template <class State, int N, bool ends, class T>
void reduce_rows(const T* x, int64_t rows, int64_t n, Output<State, Term<T>> output, Device device,
                 Stream stream) {
  constexpr int held = row_packs<State, T>;
  dim3 block = row_block(rows, n, N, held, device);
  if (block.x == 0) block = dim3(most_row_threads);
  constexpr int few = 4;  // packs of a lane where rows share a warp
  if (const unsigned lanes = lanes_of_row(rows, ceil_div(n, N), few, device); lanes < warp)
    block = dim3(lanes, block_threads / lanes);
  const int64_t blocks = ceil_div(rows, block.y);
  const int threads = static_cast<int>(block.x * block.y);
  // A row in parts takes a counter, of which there are not more.
  const bool whole = block.x <= warp || blocks > WorkCounter::most;
  const int64_t parts = whole ? 1
                              : sharing_blocks(n, blocks, held * N * threads,
                                               row_blocks<T> * most_row_threads / threads, device);
  const dim3 grid(grid_of("reduce", blocks), static_cast<unsigned>(parts));
  const auto launch = [&] {
    rows_kernel<State, N, ends><<<grid, block, 0, native(stream)>>>(x, rows, n, output);
  };
  if (parts == 1) return launch();
  const Tensor memory = memory_of<State>(rows * parts, device);
  const WorkCounter done(stream, static_cast<int>(blocks));
  output.states = static_cast<State*>(memory.data());
  output.done = done.get();
  launch();
}

/// Launches parts_kernel behind the kernel that leaves the states.
template <class State, class T>
void merge_parts(const State* states, int64_t results, int64_t parts, int64_t inner,
                 const FoldedRows<T>& rows, const Output<State, Term<T>>& output, Stream stream) {
  // As many threads as there are parts: idle ones would keep other blocks waiting.
  const auto threads_for = [](int64_t count, int64_t most) {
    return static_cast<unsigned>(
        std::min<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count))), most));
  };
  const unsigned side = threads_for(results, warp);
  const dim3 merging(side, threads_for(parts, merge_threads / side));
  launch_early(parts_kernel<State, T>, grid_of("reduce", ceil_div(results, merging.x)), merging, 0,
               stream, states, results, parts, inner, rows, output);
}

template <class State, class T>
void reduce_along_rows(const T* x, bool aligned, int64_t rows, int64_t n,
                       const Output<State, Term<T>>& output, Device device, Stream stream) {
  constexpr int N = device::pack_size<T>;
  // Rows with ends count their packs in 64 bits.
  if (aligned && n % N == 0 && n / N < int64_t{1} << 31) {
    reduce_rows<State, N, false>(x, rows, n, output, device, stream);
  } else {
    reduce_rows<State, N, true>(x, rows, n, output, device, stream);
  }
}

template <class State, int N, class T>
void reduce_columns(const T* x, const Shape& shape, const FoldedRows<T>& rows,
                    Output<State, Term<T>> output, Device device, Stream stream) {
  const int64_t outer = shape[0], n = shape[1], inner = shape[2];
  unsigned width = 1;
  while (width < warp && width * N < inner) width *= 2;
  const auto groups_of = [&](unsigned columns) { return ceil_div(inner, int64_t{columns} * N); };
  // Groups of few rows are narrower where that fills the GPU: then no parts are to be merged.
  constexpr unsigned narrow = 8;
  const int64_t wanted =
      int64_t{device_properties(device).multiprocessors} * column_blocks<State, T>;
  if (n < 16 * block_threads / narrow)
    while (width > narrow && outer * groups_of(width) < wanted) width /= 2;
  const dim3 block(width, block_threads / width);
  const int64_t groups = groups_of(width);
  const RowShares shares = RowShares::of(
      n, sharing_blocks(n, outer * groups, 8 * int64_t{block.y}, column_blocks<State, T>, device),
      block.y);
  const int64_t parts = shares.parts;
  const dim3 grid(grid_of("reduce", outer * groups), shares.parts);
  const auto launch = [&](const auto& to) {
    columns_kernel<State, N><<<grid, block, 0, native(stream)>>>(x, n, inner, shares, groups, to);
  };
  if (parts == 1 && rows.of_row == 1) return launch(output);
  const Tensor memory = memory_of<State>(outer * inner * parts, device);
  auto* const states = static_cast<State*>(memory.data());
  auto to_states = output;
  to_states.states = states;
  launch(to_states);
  const int64_t each = inner / rows.of_row, results = outer * each;
  merge_parts<State, T>(states, results, parts * rows.of_row, each, rows, output, stream);
}

/// The same where columns are no whole packs, but several rows of them are, side by side; whether
/// it was done. Rows must be many, for it takes a second launch.
template <class State, class T>
bool reduce_folded_columns(const T* x, const Shape& shape, const Output<State, Term<T>>& output,
                           Device device, Stream stream) {
  constexpr int N = device::pack_size<T>;
  constexpr int64_t many = 1024;
  const int64_t outer = shape[0], n = shape[1], inner = shape[2];
  const int64_t of_row = N / std::gcd(inner, int64_t{N}), left = n % of_row;
  if (of_row == 1 || n / of_row < many || (outer > 1 && left > 0)) return false;
  const FoldedRows<T> rows{of_row, x + (n - left) * inner, static_cast<unsigned>(left)};
  reduce_columns<State, N>(x, Shape{outer, n / of_row, inner * of_row}, rows, output, device,
                           stream);
  BS_CUDA_CHECK_LAUNCH("reduce");
  return true;
}

/// What a reduction is to give.
struct Results {
  Tensor y;
  double scale = 1;
  Tensor means = {};     ///< of moments, unless undefined
  Tensor values = {};    ///< at places, unless undefined
  Tensor numbers = {};   ///< that states begin with, unless undefined
  bool is_root = false;  ///< y gets square roots
};

template <class State, class T>
void reduce(const char* op, const Tensor& x, const Results& to, Stream stream) {
  using D = device_type<T>;
  const int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const auto* const from = static_cast<const D*>(x.data());  // bool ones are bytes of 0 or 1
  Output<State, Term<D>> output{to.y.data(), to.y.dtype(), static_cast<Term<D>>(to.scale)};
  if (to.means.defined()) output.means = static_cast<Term<D>*>(to.means.data());
  if (to.values.defined()) {
    output.values = to.values.data();
    output.value_dtype = to.values.dtype();
  }
  if (to.numbers.defined()) output.numbers = to.numbers.data();
  output.is_root = to.is_root;
  if (inner == 1) {
    reduce_along_rows<State>(from, aligned16(x), outer, n, output, x.device(), stream);
  } else {
    // Places, and numbers that states begin with, are of single rows.
    constexpr bool folds = !requires(State & s) { s.place; }
    &&!requires(State & s) { s.number; };
    if (folds && aligned16(x) && reduce_folded_columns(from, x.shape(), output, x.device(), stream))
      return;
    visit_pack<T>(aligned16(x), inner, [&]<int N>(std::integral_constant<int, N>) {
      reduce_columns<State, N>(from, x.shape(), FoldedRows<D>{}, output, x.device(), stream);
    });
  }
  BS_CUDA_CHECK_LAUNCH(op);
}

/// The first and the last axis of x [parts, results, n]: rows leave states, which are merged.
template <class State, class T>
void reduce_outer(const char* op, const Tensor& x, const Results& to, Stream stream) {
  using D = device_type<T>;
  using Out = Output<State, Term<D>>;
  const int64_t parts = x.size(0), results = x.size(1), n = x.size(2);
  const Tensor memory = memory_of<State>(parts * results, x.device());
  auto* const states = static_cast<State*>(memory.data());
  Out output{to.y.data(), to.y.dtype(), static_cast<Term<D>>(to.scale)};
  output.is_root = to.is_root;
  Out to_states = output;
  to_states.of_rows = states;
  reduce_along_rows<State>(pointer<T>(x), aligned16(x), parts * results, n, to_states, x.device(),
                           stream);
  merge_parts<State, D>(states, results, parts, results, FoldedRows<D>{}, output, stream);
  BS_CUDA_CHECK_LAUNCH(op);
}

/// Reduces a floating x with State<W>, W being what it is computed in.
template <template <class> class State>
void reduce_floating(const char* op, const Tensor& x, const Results& to, Stream stream) {
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    reduce<State<wide<device_type<T>>>, T>(op, x, to, stream);
  });
}

/// The same, or i64 or bytes.
template <template <class> class State>
void reduce_any(const char* op, const Tensor& x, const Results& to, Stream stream) {
  if (x.dtype() == i64) return reduce<State<int64_t>, int64_t>(op, x, to, stream);
  if (x.dtype() == u8 || x.dtype() == boolean)
    return reduce<State<int64_t>, uint8_t>(op, x, to, stream);
  reduce_floating<State>(op, x, to, stream);
}

}  // namespace

void sum(const Tensor& x, const Tensor& y, double scale, Stream stream) {
  reduce_any<SumState>("sum", x, {y, scale}, stream);
}

void squared_deviation(const Tensor& x, const Tensor& mean, const Tensor& y, double scale,
                       Stream stream) {
  reduce_floating<MomentState>("var", x, {.y = y, .scale = scale, .means = mean}, stream);
}

void variance(const Tensor& x, const Tensor& y, double scale, bool is_root, Stream stream) {
  reduce_floating<MomentState>("var", x, {.y = y, .scale = scale, .is_root = is_root}, stream);
}

void variance_of_parts(const Tensor& x, const Tensor& y, double scale, bool is_root,
                       Stream stream) {
  visit_floating("var", x.dtype(), [&]<class T>(Type<T>) {
    reduce_outer<MomentState<wide<device_type<T>>>, T>(
        "var", x, {.y = y, .scale = scale, .is_root = is_root}, stream);
  });
}

void root_of_squares(const Tensor& x, const Tensor& y, Stream stream) {
  reduce_floating<SquareState>("vector_norm", x, {.y = y, .is_root = true}, stream);
}

void count_equal(const Tensor& x, const Tensor& to, const Tensor& y, Stream stream) {
  reduce_floating<EqualState>("extremum_backward", x, {.y = y, .numbers = to}, stream);
}

void product(const Tensor& x, const Tensor& y, Stream stream) {
  reduce_any<ProductState>("prod", x, {y}, stream);
}

void amax(const Tensor& x, const Tensor& y, Stream stream) {
  reduce_any<MaxState>("amax", x, {y}, stream);
}

void amin(const Tensor& x, const Tensor& y, Stream stream) {
  reduce_any<MinState>("amin", x, {y}, stream);
}

void argmax(const Tensor& x, const Tensor& y, Stream stream) {
  reduce_any<ArgmaxState>("argmax", x, {y}, stream);
}

void argmin(const Tensor& x, const Tensor& y, Stream stream) {
  reduce_any<ArgminState>("argmin", x, {y}, stream);
}

void max_with_place(const Tensor& x, const Tensor& values, const Tensor& places, Stream stream) {
  reduce_any<ArgmaxState>("max", x, {.y = places, .values = values}, stream);
}

void min_with_place(const Tensor& x, const Tensor& values, const Tensor& places, Stream stream) {
  reduce_any<ArgminState>("min", x, {.y = places, .values = values}, stream);
}

void any_true(const Tensor& x, const Tensor& y, Stream stream) {
  reduce<AnyState<int64_t>, uint8_t>("any", x, {y}, stream);
}

void all_true(const Tensor& x, const Tensor& y, Stream stream) {
  reduce<AllState<int64_t>, uint8_t>("all", x, {y}, stream);
}

void log_sum_exp(const Tensor& x, const Tensor& y, Stream stream) {
  reduce_floating<LogSumState>("logsumexp", x, {y}, stream);
}

}  // namespace bs::cuda
