#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/strided_loop.h>

#include <algorithm>
#include <cstring>

namespace bs::cpu::detail {

namespace {

/// Elements brought together at a time.
constexpr int64_t piece = 512;
using Buffer = std::byte[piece * sizeof(double)];

template <class W, class T>
void gather(const T* x, int64_t stride, int64_t count, W* to_) {
  if (stride == 1) return widen(count, x, to_);
  for (int64_t i = 0; i < count; ++i) to_[i] = to<W>(x[i * stride]);
}

template <class W, class T>
void scatter(const W* from_, int64_t count, T* y, int64_t stride) {
  if (stride == 1) return narrow(count, from_, y);
  for (int64_t i = 0; i < count; ++i) y[i * stride] = from<W, T>(from_[i]);
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

  Input() = default;
  Input(const Operand& x, DType type) : dtype(type) {
    if (x.tensor.defined()) {
      dtype = x.tensor.dtype();
      data = static_cast<const std::byte*>(x.tensor.data());
    } else {
      visit_any(type, [&]<class T>(Type<T>) {
        if constexpr (std::is_arithmetic_v<T>) {
          const T value = x.number.to<T>();
          std::memcpy(number, &value, sizeof value);
        }
      });
    }
  }
};

/// Part of one row of an input, read as dense pieces.
struct Reader {
  const Input* input;
  const std::byte* at;
  int64_t stride;
  std::byte* buffer;

  /// A source that does not move along the row is repeated once and for all.
  void begin(int64_t count) const {
    if (stride != 0) return;
    visit_both(input->dtype, [&]<class T, class W>(Type<T>, Type<W>) {
      W value;
      if (input->data) {
        value = to<W>(*reinterpret_cast<const T*>(at));
      } else {
        std::memcpy(&value, input->number, sizeof value);
      }
      std::fill_n(reinterpret_cast<W*>(buffer), std::min(count, piece), value);
    });
  }

  /// Whether it is read where it lies.
  bool direct() const { return stride == 1 && !is_low_precision(input->dtype); }

  const void* read(int64_t from, int64_t count) const {
    if (stride == 0) return buffer;
    const std::byte* x = at + from * stride * static_cast<int64_t>(size_of(input->dtype));
    if (direct()) return x;
    visit_both(input->dtype, [&]<class T, class W>(Type<T>, Type<W>) {
      gather(reinterpret_cast<const T*>(x), stride, count, reinterpret_cast<W*>(buffer));
    });
    return buffer;
  }
};

template <int N>
void run_loop(Loop loop, const void* f, const Tensor& y, const StridedLoop<N + 1>& over,
              const std::array<Input, N>& inputs) {
  auto* const out = static_cast<std::byte*>(y.data());
  const auto size = static_cast<int64_t>(size_of(y.dtype()));
  const int64_t y_stride = over.inner_stride(0);
  const bool direct = y_stride == 1 && !is_low_precision(y.dtype());
  for_each_row(over, [&](const auto& offsets, int64_t first, int64_t count) {
    alignas(64) Buffer buffers[N + 1];
    std::array<Reader, N> readers;
    std::array<const void*, N> x;
    for (size_t n = 0; n < N; ++n) {
      const int64_t stride = over.inner_stride(static_cast<int>(n) + 1);
      const int64_t offset = offsets[n + 1] + first * stride;
      const std::byte* at = inputs[n].data;
      if (at) at += offset * static_cast<int64_t>(size_of(inputs[n].dtype));
      readers[n] = {&inputs[n], at, stride, buffers[n]};
      readers[n].begin(count);
    }
    std::byte* const row = out + (offsets[0] + first * y_stride) * size;
    // What lies as it is computed goes through no buffer, and so at once.
    const bool whole = direct && std::ranges::all_of(readers, &Reader::direct);
    const int64_t step = whole ? count : piece;
    for (int64_t from = 0; from < count; from += step) {
      const int64_t n = std::min(step, count - from);
      for (size_t i = 0; i < N; ++i) x[i] = readers[i].read(from, n);
      std::byte* const target = row + from * y_stride * size;
      loop(f, n, direct ? target : buffers[N], x.data());
      if (direct) continue;
      visit_both(y.dtype(), [&]<class T, class W>(Type<T>, Type<W>) {
        scatter(reinterpret_cast<const W*>(buffers[N]), n, reinterpret_cast<T*>(target), y_stride);
      });
    }
  });
}

template <size_t N>
void run_inputs(Loop loop, const void* f, const Tensor& y, std::span<const Operand> x,
                std::span<const DType> types) {
  std::array<Input, N> inputs;
  std::array<Strides, N + 1> strides{y.strides()};
  for (size_t n = 0; n < N; ++n) {
    inputs[n] = Input(x[n], types[n]);
    strides[n + 1] = x[n].strides(y.rank());
    BS_CHECK(wide(inputs[n].dtype) == types[n], "elementwise: input {} is {}, read as {}", n,
             inputs[n].dtype, types[n]);
  }
  run_loop<static_cast<int>(N)>(loop, f, y, StridedLoop<N + 1>(y.shape(), strides), inputs);
}

}  // namespace

void run(Loop loop, const void* f, const Tensor& y, std::span<const Operand> x,
         std::span<const DType> types) {
  switch (x.size()) {
    case 1:
      return run_inputs<1>(loop, f, y, x, types);
    case 2:
      return run_inputs<2>(loop, f, y, x, types);
    default:
      return run_inputs<3>(loop, f, y, x, types);
  }
}

}  // namespace bs::cpu::detail
