#include <bs/kernels/rope.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

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
    rope_kernel<D><<<grid_size(count, threads, x.device()), threads, 0, native(stream)>>>(
        pointer<T>(x), static_cast<const wide<D>*>(table.data()), pointer<T>(y), rows, count, pairs,
        rest, options.interleaved, options.inverse);
  });
  BS_CUDA_CHECK_LAUNCH("rope");
}

}  // namespace bs::cuda
