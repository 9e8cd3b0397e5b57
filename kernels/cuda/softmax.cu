#include <bs/kernels/softmax.h>
#include <bs/kernels/cuda/rows.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::wide;

/// Softmax, or its logarithm, of one row: one read and one write where it is held.
template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_kernel(const T* x, T* y, int64_t rows, int64_t n) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  Row in;
  in.load(x + row * n, n);
  W top = -INFINITY;
  Row::for_each(n, [&](auto p) { top = fmax(top, in[p]); });
  top = row_reduce(top, device::Max{}, W(-INFINITY));
  W sum = 0;
  Row::for_each(n, [&](auto p) { sum += exp(in[p] - top); });
  sum = row_sum(sum);
  if constexpr (logarithm) {
    const W rest = log(sum);
    Row::store(y + row * n, n, [&](auto p) { return in[p] - top - rest; });
  } else {
    const W scale = 1 / sum;
    Row::store(y + row * n, n, [&](auto p) { return exp(in[p] - top) * scale; });
  }
}

/// dx of one row: y (dy - sum y dy), or dy - exp(y) sum dy for the logarithm.
template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, int64_t rows, int64_t n) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  Row out;
  Row slope;
  out.load(y + row * n, n);
  slope.load(dy + row * n, n);
  W sum = 0;
  Row::for_each(n, [&](auto p) { sum += logarithm ? slope[p] : out[p] * slope[p]; });
  sum = row_sum(sum);
  Row::store(dx + row * n, n, [&](auto p) {
    return logarithm ? slope[p] - exp(out[p]) * sum : out[p] * (slope[p] - sum);
  });
}

template <bool logarithm>
void launch(const char* op, const Tensor& x, const Tensor& y, Stream stream) {
  const int64_t n = x.size(-1);
  const int64_t rows = x.numel() / n;
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    visit_row<T>(aligned16(x, y), n, [&]<class Row>(Type<Row>, dim3 block) {
      const auto grid = static_cast<unsigned>(ceil_div(rows, block.y));
      softmax_kernel<device_type<T>, Row, logarithm>
          <<<grid, block, 0, native(stream)>>>(pointer<T>(x), pointer<T>(y), rows, n);
    });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

template <bool logarithm>
void launch_backward(const char* op, const Tensor& y, const Tensor& dy, const Tensor& dx,
                     Stream stream) {
  const int64_t n = y.size(-1);
  const int64_t rows = y.numel() / n;
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) {
    visit_row<T>(aligned16(y, dy, dx), n, [&]<class Row>(Type<Row>, dim3 block) {
      const auto grid = static_cast<unsigned>(ceil_div(rows, block.y));
      softmax_backward_kernel<device_type<T>, Row, logarithm><<<grid, block, 0, native(stream)>>>(
          pointer<T>(y), pointer<T>(dy), pointer<T>(dx), rows, n);
    });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace

void softmax(const Tensor& x, const Tensor& y, Stream stream) {
  launch<false>("softmax", x, y, stream);
}

void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  launch_backward<false>("softmax_backward", y, dy, dx, stream);
}

void log_softmax(const Tensor& x, const Tensor& y, Stream stream) {
  launch<true>("log_softmax", x, y, stream);
}

void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  launch_backward<true>("log_softmax_backward", y, dy, dx, stream);
}

}  // namespace bs::cuda
