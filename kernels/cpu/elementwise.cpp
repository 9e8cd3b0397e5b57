#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/strided_loop.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace bs::cpu::loops {

namespace {

/// Elements brought together at a time.
constexpr int64_t piece = 512;
using Buffer = std::byte[piece * sizeof(double)];

template <class W, class T>
void gather(const T* x, int64_t stride, int64_t count, W* to_) {
  if (stride == 1) return widen(count, x, to_);
  for (int64_t i = 0; i < count; ++i) to_[i] = convert<W>(x[i * stride]);
}

template <class W, class T>
void scatter(const W* from_, int64_t count, T* y, int64_t stride) {
  if (stride == 1) return narrow(count, from_, y);
  for (int64_t i = 0; i < count; ++i) y[i * stride] = convert<T>(from_[i]);
}

/// Calls f(Type<T>{}, Type<W>{}) with the C++ type of `dtype` and that of its computations.
template <class F>
void visit_both(DType dtype, F f) {
  visit_any(dtype, [&]<class T>(Type<T> t) { f(t, Type<Wide<T>>{}); });
}

DType wide(DType dtype) { return is_low_precision(dtype) ? f32 : dtype; }

/// An input of a run: where it lies, or the number that stands for it.
struct Input {
  const std::byte* data = nullptr;
  DType dtype = f32;
  alignas(8) std::byte number[8] = {};
  std::byte narrow[2] = {};  ///< the number in the result's 16-bit dtype
  bool is_exact = false;     ///< whether it is the number

  Input() = default;
  Input(const Operand& x, DType type, DType result) : dtype(type) {
    if (x.tensor.defined()) {
      dtype = x.tensor.dtype();
      data = static_cast<const std::byte*>(x.tensor.data());
      return;
    }
    visit_any(type, [&]<class T>(Type<T>) {
      if constexpr (std::is_arithmetic_v<T>) {
        const T value = x.number.to<T>();
        std::memcpy(number, &value, sizeof value);
      }
    });
    if (is_low_precision(result)) set_narrow(result, x.number.to<float>());
  }

  /// Whether it can be read as elements of a 16-bit dtype.
  bool is(DType narrow_dtype, int64_t stride) const {
    return data ? dtype == narrow_dtype && (stride == 0 || stride == 1) : is_exact;
  }

 private:
  void set_narrow(DType result, float value) {
    visit_any(result, [&]<class T>(Type<T>) {
      const T near = static_cast<T>(value);
      is_exact = static_cast<float>(near) == value;
      if constexpr (sizeof near == sizeof narrow) std::memcpy(narrow, &near, sizeof near);
    });
  }
};

/// How the rows of an input are read.
struct Reader {
  Input input;
  int64_t stride = 0, bytes = 0;  ///< of a step along the row
  bool is_direct = false;         ///< where it lies, or without moving

  Reader() = default;
  Reader(const Input& x, int64_t step)
      : input(x),
        stride(step),
        bytes(step * static_cast<int64_t>(size_of(x.dtype))),
        is_direct(step == 0 || (step == 1 && !is_low_precision(x.dtype))) {}

  /// The row at `at` as it is, of a 16-bit dtype.
  Source narrow(const std::byte* at, std::byte* buffer) const {
    if (stride == 1) return {at, true};
    uint16_t bits = 0;
    std::memcpy(&bits, input.data ? at : input.narrow, sizeof bits);
    std::fill_n(reinterpret_cast<uint16_t*>(buffer), block, bits);
    return {buffer, false};
  }

  /// Widens a source that does not move along the row once and for all, as `count` elements.
  void repeat(const std::byte* at, std::byte* buffer, int64_t count = block) const {
    visit_both(input.dtype, [&]<class T, class W>(Type<T>, Type<W>) {
      W value;
      if (input.data) {
        value = convert<W>(*reinterpret_cast<const T*>(at));
      } else {
        std::memcpy(&value, input.number, sizeof value);
      }
      std::fill_n(reinterpret_cast<W*>(buffer), count, value);
    });
  }

  /// `count` elements from `at` on as they are computed with, after repeat() where none moves.
  Source read(const std::byte* at, int64_t count, std::byte* buffer) const {
    if (stride == 0) return {buffer, false};
    if (is_direct) return {at, true};
    visit_both(input.dtype, [&]<class T, class W>(Type<T>, Type<W>) {
      gather(reinterpret_cast<const T*>(at), stride, count, reinterpret_cast<W*>(buffer));
    });
    return {buffer, true};
  }
};

/// A function, what it reads, and how its results are written.
template <size_t N>
struct Runner {
  Loop wide = nullptr, narrow = nullptr;  ///< `narrow`: if all is dense and of one 16-bit dtype
  const void* f;
  DType dtype;
  int64_t stride, bytes;
  bool is_direct, is_whole;  ///< whole: nothing goes through pieces
  bool repeats;              ///< no input moves along a row
  bool is_dense;             ///< whole, and all inputs move
  std::array<Reader, N> readers;

  Runner(const Loops& loops, const void* function, const Tensor& y, const StridedLoop<N + 1>& over,
         const std::array<Input, N>& inputs)
      : wide(loops.wide), f(function), dtype(y.dtype()), stride(over.inner_stride(0)) {
    bytes = stride * static_cast<int64_t>(size_of(dtype));
    is_whole = is_direct = stride == 1 && !is_low_precision(dtype);
    bool is_narrow = repeats = stride == 1;
    for (size_t n = 0; n < N; ++n) {
      readers[n] = Reader(inputs[n], over.inner_stride(static_cast<int>(n) + 1));
      is_whole &= readers[n].is_direct;
      is_narrow &= inputs[n].is(dtype, readers[n].stride);
      repeats &= readers[n].stride == 0;
    }
    is_dense =
        is_whole && std::ranges::all_of(readers, [](const Reader& r) { return r.stride == 1; });
    if (is_narrow && dtype == f16) narrow = loops.of_half;
    if (is_narrow && dtype == bf16) narrow = loops.of_bfloat16;
  }

  /// Part of a row that lies as it is computed: with nothing besides, for rows may be short.
  void compute(std::byte* row, const std::array<const std::byte*, N>& at, int64_t count) const {
    std::array<Source, N> x;
    for (size_t n = 0; n < N; ++n) x[n] = {at[n], true};
    wide(f, count, row, x.data());
  }

  /// Part of a row of equal results.
  void repeat(std::byte* row, const std::array<const std::byte*, N>& at, int64_t count) const {
    alignas(64) Buffer buffers[N + 1];
    std::array<Source, N> x;
    for (size_t n = 0; n < N; ++n) {
      readers[n].repeat(at[n], buffers[n], 1);
      x[n] = {buffers[n], false};
    }
    wide(f, 1, buffers[N], x.data());
    visit_both(dtype, [&]<class T, class W>(Type<T>, Type<W>) {
      const T result = convert<T>(*reinterpret_cast<const W*>(buffers[N]));
      if constexpr (sizeof(T) == 2) {  // g++ vectorises no loop over a class
        std::fill_n(reinterpret_cast<uint16_t*>(row), count, std::bit_cast<uint16_t>(result));
      } else {
        std::fill_n(reinterpret_cast<T*>(row), count, result);
      }
    });
  }

  /// Part of a row, whose elements lie at `at`.
  void operator()(std::byte* row, const std::array<const std::byte*, N>& at, int64_t count) const {
    if (is_dense) return compute(row, at, count);
    if (repeats) return repeat(row, at, count);
    alignas(64) Buffer buffers[N + 1];
    std::array<Source, N> x;
    int64_t from = 0;
    if (narrow && count >= block) {
      for (size_t n = 0; n < N; ++n) x[n] = readers[n].narrow(at[n], buffers[n]);
      narrow(f, count, row, x.data());
      from = count / block * block;
      if (from == count) return;
    }
    for (size_t n = 0; n < N; ++n)
      if (readers[n].stride == 0) readers[n].repeat(at[n], buffers[n]);
    // What lies as it is computed goes through no buffer, and so at once.
    const int64_t step = is_whole ? count : piece;
    for (; from < count; from += step) {
      const int64_t some = std::min(step, count - from);
      for (size_t n = 0; n < N; ++n)
        x[n] = readers[n].read(at[n] + from * readers[n].bytes, some, buffers[n]);
      std::byte* const target = row + from * bytes;
      wide(f, some, is_direct ? target : buffers[N], x.data());
      if (is_direct) continue;
      visit_both(dtype, [&]<class T, class W>(Type<T>, Type<W>) {
        scatter(reinterpret_cast<const W*>(buffers[N]), some, reinterpret_cast<T*>(target), stride);
      });
    }
  }
};

/// `over` with its rows joined to those that follow: every tensor goes on from row to row, or is an
/// input that repeats its row. Of rank 0 where that is not so, and where rows are long.
template <int M>
StridedLoop<M> joined_rows(const StridedLoop<M>& over) {
  StridedLoop<M> joined = over;
  joined.rank = 0;
  const int last = over.rank - 2;
  if (last < 0 || over.inner() > piece / 2) return joined;
  for (int n = 0; n < M; ++n) {
    const int64_t apart = over.strides[n][last], step = over.inner_stride(n);
    const bool goes_on = apart == over.inner() * step;
    if (!goes_on && (n == 0 || apart != 0 || step != 1)) return joined;
    joined.strides[n][last] = goes_on ? step : 0;
  }
  joined.shape[last] *= over.inner();
  joined.rank = over.rank - 1;
  return joined;
}

/// Where the tensors of a run lie, and the bytes of their elements: 0 of a number, which has no
/// place.
template <size_t N>
struct Places {
  std::byte* out;
  int64_t size;
  std::array<const std::byte*, N> data{};
  std::array<int64_t, N> sizes{};
};

/// Short rows, as many at a time as fit a piece: a call for each takes longer than what it
/// computes. What an input repeats is written as often beside itself.
template <size_t N>
void run_joined(const Runner<N>& runner, const StridedLoop<N + 1>& joined, int64_t inner,
                const Places<N>& places) {
  const int64_t period = std::min(piece / inner * inner, joined.inner());
  for_each_row(joined, [&](const auto& offsets, int64_t first, int64_t count) {
    alignas(64) std::byte repeated[N][(piece + piece / 2) * sizeof(double)];
    std::array<const std::byte*, N> at;
    std::array<int64_t, N> step;  // from one piece to the next
    for (size_t n = 0; n < N; ++n) {
      const int64_t size = places.sizes[n], bytes = runner.readers[n].bytes;
      const std::byte* const row = places.data[n] + offsets[n + 1] * size;
      at[n] = row + first * bytes;
      step[n] = period * bytes;
      if (joined.inner_stride(static_cast<int>(n) + 1) != 0 || bytes == 0) continue;
      for (int64_t i = 0; i < period + inner; i += inner)
        std::memcpy(repeated[n] + i * size, row, static_cast<size_t>(inner * size));
      at[n] = repeated[n] + first % inner * size;
      step[n] = 0;
    }
    std::byte* to = places.out + offsets[0] * places.size + first * runner.bytes;
    for (; count > 0; count -= period, to += period * runner.bytes) {
      runner(to, at, std::min(count, period));
      for (size_t n = 0; n < N; ++n) at[n] += step[n];
    }
  });
}

template <size_t N>
void run_inputs(const Loops& loops, const void* f, const Tensor& y, std::span<const Operand> x,
                std::span<const DType> types) {
  std::array<Input, N> inputs;
  std::array<Strides, N + 1> strides{y.strides()};
  Places<N> places{static_cast<std::byte*>(y.data()), static_cast<int64_t>(size_of(y.dtype()))};
  for (size_t n = 0; n < N; ++n) {
    inputs[n] = Input(x[n], types[n], y.dtype());
    strides[n + 1] = x[n].strides(y.rank());
    BS_CHECK(wide(inputs[n].dtype) == types[n], "elementwise: input {} is {}, read as {}", n,
             inputs[n].dtype, types[n]);
    places.data[n] = inputs[n].data;
    places.sizes[n] = inputs[n].data ? static_cast<int64_t>(size_of(inputs[n].dtype)) : 0;
  }
  const StridedLoop<N + 1> over(y.shape(), strides), joined = joined_rows(over);
  const Runner<N> runner(loops, f, y, over, inputs);
  if (joined.rank > 0) return run_joined(runner, joined, over.inner(), places);
  for_each_row(over, [&](const auto& offsets, int64_t first, int64_t count) {
    std::array<const std::byte*, N> at;
    for (size_t n = 0; n < N; ++n)
      at[n] = places.data[n] + offsets[n + 1] * places.sizes[n] + first * runner.readers[n].bytes;
    runner(places.out + offsets[0] * places.size + first * runner.bytes, at, count);
  });
}

/// Whether rows of x lie across those of y, dense along another axis.
bool lies_across(const Tensor& x, const Tensor& y) {
  const int last = y.rank() - 1;
  if (last < 1 || x.shape() != y.shape() || y.strides()[last] != 1) return false;
  return x.strides()[last] > 1 &&
         std::ranges::any_of(x.strides(), [](int64_t s) { return s == 1; });
}

}  // namespace

void run(const Loops& loops, const void* f, const Tensor& y, std::span<const Operand> x,
         std::span<const DType> types) {
  // An input that lies across is copied first, in tiles. Read where it lies, it would use one
  // element of each line of the cache that it touches.
  std::vector<Operand> inputs(x.begin(), x.end());
  for (Operand& input : inputs) {
    if (y.numel() < elementwise_grain || !input.tensor.defined()) continue;
    if (!lies_across(input.tensor, y)) continue;
    const Tensor dense = Tensor::empty(y.shape(), input.tensor.dtype());
    copy(input.tensor, dense, Stream());
    input.tensor = dense;
  }
  switch (x.size()) {
    case 1:
      return run_inputs<1>(loops, f, y, inputs, types);
    case 2:
      return run_inputs<2>(loops, f, y, inputs, types);
    default:
      return run_inputs<3>(loops, f, y, inputs, types);
  }
}

}  // namespace bs::cpu::loops
