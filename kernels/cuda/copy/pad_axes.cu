#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/pad_axes.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/unit_pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <bit>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// An axis of y: `inner` elements of x at low + i * step, which lie `stride` apart.
struct PadAxis {
  Divisor extent, step;
  int32_t low = 0, inner = 1, stride = 0;

  /// Which element of x stands at a place, -1 for none.
  __device__ int32_t element(int32_t place) const {
    const int32_t by = place - low;
    if (by < 0) return -1;
    if (step.number == 1) return by < inner ? by : -1;
    const auto i = static_cast<int32_t>(step.divide(static_cast<uint32_t>(by)));
    return i < inner && i * static_cast<int32_t>(step.number) == by ? i : -1;
  }
};

/// All axes, the innermost first, those merged that x fills side by side.
struct PadLoop {
  int rank = 0;
  PadAxis axis[Dims::max_rank];
  uint32_t count = 0;    ///< elements of y
  unsigned pattern = 0;  ///< of the innermost axis: bits as far apart as elements of x

  /// Where a line of y begins in x, -1 where x has no part in it.
  __device__ int32_t line(uint32_t number) const {
    int32_t at = 0;
    bool exists = true;
#pragma unroll 1
    for (int a = 1; a < rank; ++a) {
      const uint32_t rest = axis[a].extent.divide(number);
      const int32_t i =
          axis[a].element(static_cast<int32_t>(number - rest * axis[a].extent.number));
      exists = exists && i >= 0;
      at += i * axis[a].stride;
      number = rest;
    }
    return exists ? at : -1;
  }
};

/// What is moved, as bits.
template <class T>
struct PadSource {
  const T* data;  ///< null where x is a number
  T number, value;
};

/// The elements of x among N places of a line of y: where they stand, as bits, and the first.
template <int N, bool run>
struct PadLine {
  unsigned exist = 0;
  int32_t at = 0;

  /// Of the line that begins there in x, -1 for none; the axis begins `to_low` places on.
  __device__ PadLine(const PadLoop& loop, int32_t begin, int32_t to_low) {
    const PadAxis& inner = loop.axis[0];
    if constexpr (run) {
      const int32_t from = max(to_low, 0), end = min(to_low + inner.inner, N);
      if (begin >= 0 && from < end) exist = (1U << end) - (1U << from);
      return;
    }
    const uint32_t step = inner.step.number, by = max(-to_low, 0);
    uint32_t i = step == 1 ? by : inner.step.divide(by);
    if (i * step < by) ++i;
    const uint32_t first = static_cast<uint32_t>(to_low) + i * step;
    const int32_t left = inner.inner - static_cast<int32_t>(i);
    if (begin < 0 || left <= 0 || first >= N) return;
    const uint32_t end = left > N ? N : min(first + (left - 1) * step + 1, uint32_t{N});
    exist = (loop.pattern << first) & ((1U << end) - 1);
    at = begin + static_cast<int32_t>(i) * inner.stride;
  }
};

/// How the innermost axis of x lies in that of y.
enum class PadKind { packs, runs, strided, numbers };

/// A thread N elements of y that lie side by side, in two lines of it where it wraps. Of packs all
/// are of x or none; runs lie side by side in x too.
template <class T, int N, PadKind kind, bool wraps>
__global__ void __launch_bounds__(threads)
    pad_kernel(const PadSource<T> x, T* y, const __grid_constant__ PadLoop loop) {
  constexpr uint32_t block = threads * N;
  const PadAxis& inner = loop.axis[0];
  // The lines of a block, which are a few where one is no shorter than N: each is found once.
  __shared__ int32_t begins[threads + 1];
  const uint32_t first_line = inner.extent.divide(blockIdx.x * block);
  const uint32_t last_line = inner.extent.divide(min(blockIdx.x * block + block, loop.count) - 1);
  for (uint32_t l = threadIdx.x; l <= last_line - first_line; l += threads)
    begins[l] = loop.line(first_line + l);
  __syncthreads();
  const uint32_t first = blockIdx.x * block + threadIdx.x * N;
  if (first >= loop.count) return;
  const uint32_t number = inner.extent.divide(first);
  const auto column = static_cast<int32_t>(first - number * inner.extent.number);
  const int32_t to_low = inner.low - column, begin = begins[number - first_line];
  device::Pack<T, N> made;
#pragma unroll
  for (int k = 0; k < N; ++k) made.at[k] = x.value;
  if constexpr (kind == PadKind::packs) {
    if (begin >= 0 && to_low <= 0 && -to_low < inner.inner)
      made = *reinterpret_cast<const device::Pack<T, N>*>(x.data + (begin - to_low));
  } else {
    using Line = PadLine<N, kind == PadKind::runs>;
    Line line(loop, begin, to_low);
    int32_t from = begin - to_low, room = N, next_from = 0, next_at = 0;
    if constexpr (wraps) {
      room = static_cast<int32_t>(inner.extent.number) - column;
      const int32_t next = room < N && number < last_line ? begins[number + 1 - first_line] : -1;
      const Line next_line(loop, next, to_low + inner.extent.number);
      line.exist |= next_line.exist;
      next_from = next - room - inner.low;
      next_at = next_line.at;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool exists = line.exist >> k & 1;
      if constexpr (kind == PadKind::runs) {
        if (exists) made.at[k] = __ldg(x.data + (k < room ? from : next_from) + k);
      } else if constexpr (kind == PadKind::numbers) {
        if (exists) made.at[k] = x.number;
      } else {
        if (wraps && k == room) line.at = next_at;
        if (exists) made.at[k] = __ldg(x.data + line.at);
        line.at += exists ? inner.stride : 0;
      }
    }
  }
  store_units<T, N>(y + first, made, loop.count - first);
}

/// y is x at every second place, from the first or the second on: a thread N neighbours in y, and
/// no search for those that exist, which would take longer than memory does.
template <class T, int N, bool second>
__global__ void __launch_bounds__(threads)
    every_second_kernel(const PadSource<T> x, T* y, uint32_t count) {
  const uint32_t first = (blockIdx.x * threads + threadIdx.x) * N;
  if (first + N <= count) {
    const auto from = *reinterpret_cast<const device::Pack<T, N / 2>*>(x.data + first / 2);
    device::Pack<T, N> made;
#pragma unroll
    for (int k = 0; k < N; ++k) made.at[k] = k % 2 == second ? from.at[k / 2] : x.value;
    *reinterpret_cast<device::Pack<T, N>*>(y + first) = made;
  } else {
    for (uint32_t i = first; i < count; ++i) y[i] = i % 2 == second ? x.data[i / 2] : x.value;
  }
}

/// The axes of a y that x lies in.
class PadSearch {
 public:
  PadSearch(const AxisPlaces& places, const Strides& strides, const Tensor& y)
      : fits_32_bits(y.numel() < end) {
    if (!fits_32_bits) return;
    loop.count = static_cast<uint32_t>(y.numel());
    for (int a = y.rank() - 1; a >= 0; --a) {
      const int64_t n = places.inner[a], step = n > 1 ? places.step[a] : 1;
      add({.extent = y.size(a),
           .low = places.low[a],
           .inner = n,
           .step = step,
           .stride = strides[a]});
      reach += (n - 1) * strides[a];
    }
    take();
    const PadAxis& inner = loop.axis[0];
    for (uint32_t bit = 0; bit < 16; bit += inner.step.number) loop.pattern |= 1U << bit;
    fits_32_bits = reach < end;
  }

  PadLoop loop;
  bool fits_32_bits;

 private:
  static constexpr int64_t end = int64_t{1} << 31;
  struct Axis {
    int64_t extent = 1, low = 0, inner = 1, step = 1, stride = 1;
    /// Whether x goes on evenly from the end of one line to the next.
    bool goes_on() const { return low >= 0 && low < step && extent == inner * step; }
  };

  /// Merges an axis with those inside of it, where x goes on evenly.
  void add(const Axis& outer) {
    if (outer.extent == 1 && outer.inner == 1) return;
    if (!any) {
      last = outer;
      any = true;
      return;
    }
    if (outer.step == 1 && last.goes_on() && outer.stride == last.stride * last.inner) {
      last = {.extent = outer.extent * last.extent,
              .low = outer.low * last.extent + last.low,
              .inner = outer.inner * last.inner,
              .step = last.step,
              .stride = last.stride};
      return;
    }
    take();
    last = outer;
  }
  void take() {
    const auto small = [](int64_t n) { return static_cast<int32_t>(n); };
    loop.axis[loop.rank++] = {Divisor(last.extent), Divisor(last.step), small(last.low),
                              small(last.inner), small(last.stride)};
  }

  Axis last;
  bool any = false;
  int64_t reach = 0;
};

/// Whether whole packs of N are of x or not.
template <class T, int N>
bool has_packs(const PadLoop& loop, const T* from) {
  const PadAxis& inner = loop.axis[0];
  const auto numbers = static_cast<int64_t>(inner.extent.number) | inner.low | inner.inner;
  bool whole = numbers % N == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  for (int a = 1; a < loop.rank; ++a) whole = whole && loop.axis[a].stride % N == 0;
  return whole;
}

/// Whether x lies densely, at every second place of y, in halves of packs.
template <class T>
bool is_every_second(const PadLoop& loop, const T* from) {
  const PadAxis& inner = loop.axis[0];
  return loop.rank == 1 && inner.step.number == 2 && inner.stride == 1 &&
         (inner.low == 0 || inner.low == 1) &&
         inner.inner == (int64_t{loop.count} - inner.low + 1) / 2 &&
         reinterpret_cast<uintptr_t>(from) % 8 == 0;
}

template <class T, int N, PadKind kind>
void launch(const PadLoop& loop, const PadSource<T>& x, T* y, Stream stream) {
  const bool wraps = loop.axis[0].extent.number % N != 0 && loop.rank > 1;
  const auto kernel =
      wraps ? pad_kernel<T, N, kind, kind != PadKind::packs> : pad_kernel<T, N, kind, false>;
  const auto blocks = static_cast<unsigned>(ceil_div(loop.count, threads * N));
  kernel<<<blocks, threads, 0, native(stream)>>>(x, y, loop);
  BS_CUDA_CHECK_LAUNCH("pad");
}

template <class T>
void pad_elements(const PadLoop& loop, const PadSource<T>& x, T* y, Stream stream) {
  constexpr int N = device::pack_size<T>;
  const PadAxis& inner = loop.axis[0];
  // A thread's elements are of two lines at most.
  const bool several =
      (inner.extent.number >= N || loop.rank == 1) && reinterpret_cast<uintptr_t>(y) % 16 == 0;
  if (!x.data)
    return several ? launch<T, N, PadKind::numbers>(loop, x, y, stream)
                   : launch<T, 1, PadKind::numbers>(loop, x, y, stream);
  if (!several) return launch<T, 1, PadKind::strided>(loop, x, y, stream);
  if (is_every_second(loop, x.data)) {
    const auto blocks = static_cast<unsigned>(ceil_div(loop.count, threads * N));
    const auto kernel =
        inner.low == 0 ? every_second_kernel<T, N, false> : every_second_kernel<T, N, true>;
    kernel<<<blocks, threads, 0, native(stream)>>>(x, y, loop.count);
    return BS_CUDA_CHECK_LAUNCH("pad");
  }
  if (inner.step.number != 1 || inner.stride != 1)
    return launch<T, N, PadKind::strided>(loop, x, y, stream);
  if (has_packs<T, N>(loop, x.data)) return launch<T, N, PadKind::packs>(loop, x, y, stream);
  launch<T, N, PadKind::runs>(loop, x, y, stream);
}

/// Whether x strides over its last axis, while another lies densely.
bool lies_across(const Tensor& x) {
  bool dense = false;
  for (int axis = 0; axis < x.rank() - 1; ++axis)
    dense = dense || (x.strides()[axis] == 1 && x.size(axis) > 1);
  return dense && x.strides().back() > 1 && x.shape().back() > 1;
}

}  // namespace

void pad_axes(const Operand& x, const AxisPlaces& places, double value, const Tensor& y,
              Stream stream) {
  Dims first;
  const AxisPlaces seen = places.within(y.shape(), first);
  if (seen.inner.product() == 0) return cuda::fill(y, value, stream);
  Tensor from = x.tensor;
  for (int axis = 0; from.defined() && axis < y.rank(); ++axis)
    from = from.slice(axis, first[axis], first[axis] + seen.inner[axis]);
  if (from.defined() && lies_across(from)) {
    const Tensor dense = Tensor::empty(from.shape(), from.dtype(), from.device());
    cuda::copy(from, dense, stream);
    from = dense;
  }
  const Strides strides = from.defined() ? from.strides() : Dims::filled(y.rank(), 0);
  const PadSearch found(seen, strides, y);
  if (!found.fits_32_bits) {
    const PadViews part = pad_views(x, places, y);
    cuda::fill(y, value, stream);
    return cuda::copy(part.from, part.to, stream);
  }
  visit_any(y.dtype(), [&]<class T>(Type<T>) {
    using B = Bits<sizeof(T)>;
    const auto bits = [](double number) { return std::bit_cast<B>(static_cast<T>(number)); };
    const PadSource<B> source{from.defined() ? static_cast<const B*>(from.data()) : nullptr,
                              bits(x.number.to<double>()), bits(value)};
    pad_elements(found.loop, source, static_cast<B*>(y.data()), stream);
  });
}

}  // namespace bs::cuda
