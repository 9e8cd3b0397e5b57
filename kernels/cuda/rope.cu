#include <bs/kernels/rope.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

namespace bs::cuda {

namespace {

using device::wide;

/// Rows [batch, heads, sequence] of two tensors, in elements.
struct Rows {
  int64_t heads, length;
  int64_t x_batch, x_head, x_row, y_batch, y_head, y_row;
};

/// A thread a pair, or one of the elements that stay; those of a row lie side by side.
template <class T>
__global__ void rope_kernel(const T* x, const wide<T>* table, T* y, Rows rows, int64_t count,
                            int pairs, int rest, bool interleaved, bool inverse) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const auto item = static_cast<int>(i % (pairs + rest));
    const int64_t row = i / (pairs + rest);
    const int64_t h = row % rows.heads, s = row / rows.heads % rows.length;
    const int64_t b = row / rows.heads / rows.length;
    const T* const from = x + b * rows.x_batch + h * rows.x_head + s * rows.x_row;
    T* const to = y + b * rows.y_batch + h * rows.y_head + s * rows.y_row;
    if (item >= pairs) {
      to[pairs + item] = from[pairs + item];
      continue;
    }
    const int first = interleaved ? 2 * item : item;
    const int second = first + (interleaved ? 1 : pairs);
    const wide<T> a = device::widen(from[first]), c = device::widen(from[second]);
    const wide<T> cosine = table[s * 2 * pairs + item];
    const wide<T> turned = table[s * 2 * pairs + pairs + item];
    const wide<T> sine = inverse ? -turned : turned;
    to[first] = device::narrow<T>(a * cosine - c * sine);
    to[second] = device::narrow<T>(c * cosine + a * sine);
  }
}

/// The same by vectors of N elements, of halves that are not interleaved. Neighbouring threads have
/// the heads of one place, which read the same cosines and sines.
template <class T, int N>
__global__ void rope_pack_kernel(const T* x, const wide<T>* table, T* y, Rows rows, uint32_t count,
                                 Divisor packs, Divisor heads, Divisor length, int pairs,
                                 bool inverse) {
  using Vector = device::Raw<T, N>;
  using Numbers = device::Pack<wide<T>, N>;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t row = packs.divide(i), place = heads.divide(row), b = length.divide(place);
  const auto item = static_cast<int>(i - row * packs.number) * N;
  const int64_t h = row - place * heads.number, s = place - b * length.number;
  const T* const from = x + b * rows.x_batch + h * rows.x_head + s * rows.x_row;
  T* const to = y + b * rows.y_batch + h * rows.y_head + s * rows.y_row;
  const auto at = [](auto* p) -> auto& { return *reinterpret_cast<const Vector*>(p); };
  if (item >= pairs) {
    *reinterpret_cast<Vector*>(to + pairs + item) = at(from + pairs + item);
    return;
  }
  wide<T> a[N], c[N];
  device::widen_pack<T, N>(at(from + item), a);
  device::widen_pack<T, N>(at(from + pairs + item), c);
  const auto& cosines = *reinterpret_cast<const Numbers*>(table + s * 2 * pairs + item);
  const auto& sines = *reinterpret_cast<const Numbers*>(table + s * 2 * pairs + pairs + item);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const wide<T> cosine = cosines.at[k], sine = inverse ? -sines.at[k] : sines.at[k];
    const wide<T> first = a[k];
    a[k] = first * cosine - c[k] * sine;
    c[k] = c[k] * cosine + first * sine;
  }
  const auto low = device::narrow_pack<T, N>(a), high = device::narrow_pack<T, N>(c);
  *reinterpret_cast<Vector*>(to + item) = reinterpret_cast<const Vector&>(low);
  *reinterpret_cast<Vector*>(to + pairs + item) = reinterpret_cast<const Vector&>(high);
}

/// Whether every row, and every half of one, begins where vectors of N do.
bool packable(const Tensor& x, const Tensor& table, const Tensor& y, int pairs, int rest, int N) {
  bool even = pairs % N == 0 && rest % N == 0;
  for (const Tensor& t : {x, y})
    for (int axis = 0; axis < 3; ++axis) even = even && t.strides()[axis] % N == 0;
  for (const Tensor& t : {x, table, y})
    even = even && reinterpret_cast<uintptr_t>(t.data()) % 16 == 0;
  return even;
}

}  // namespace

void rope(const Tensor& x, const Tensor& table, const Tensor& y, const RopeOptions& options,
          Stream stream) {
  constexpr int threads = 256;
  const auto pairs = static_cast<int>(table.size(2));
  const auto rest = static_cast<int>(x.size(3)) - 2 * pairs;
  const int64_t count = x.size(0) * x.size(1) * x.size(2) * (pairs + rest);
  const Rows rows{x.size(1),      x.size(2),      x.strides()[0], x.strides()[1],
                  x.strides()[2], y.strides()[0], y.strides()[1], y.strides()[2]};
  visit_floating("rope", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    constexpr int N = device::pack_size<D>;
    const int64_t packs = count / N;
    if (!options.interleaved && packs < int64_t{1} << 31 && packable(x, table, y, pairs, rest, N)) {
      rope_pack_kernel<D, N>
          <<<static_cast<unsigned>(ceil_div(packs, threads)), threads, 0, native(stream)>>>(
              pointer<T>(x), static_cast<const wide<D>*>(table.data()), pointer<T>(y), rows,
              static_cast<uint32_t>(packs), Divisor((pairs + rest) / N), Divisor(rows.heads),
              Divisor(rows.length), pairs, options.inverse);
      return;
    }
    rope_kernel<D><<<grid_size(count, threads, x.device()), threads, 0, native(stream)>>>(
        pointer<T>(x), static_cast<const wide<D>*>(table.data()), pointer<T>(y), rows, count, pairs,
        rest, options.interleaved, options.inverse);
  });
  BS_CUDA_CHECK_LAUNCH("rope");
}

}  // namespace bs::cuda
