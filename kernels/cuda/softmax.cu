#include <bs/kernels/softmax.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::exp_of;
using device::wide;

/// Softmax, or its logarithm, of one row: one read and one write where it is held.
template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_kernel(const T* x, T* y, int64_t rows, int64_t n) {
  using W = wide<T>;
  constexpr int N = Row::N;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool inside = row < rows;  // lanes outside take part in what the warp reduces
  Row in;
  in.load(inside ? x + row * n : x, n);
  const auto for_each = [&](auto&& f) {
    Row::for_each_pack(n, [&](int k, unsigned p) {
      W v[N];
      in.get(k, p, v);
      f(p, v);
    });
  };
  W top = -INFINITY;
  for_each([&](unsigned, W(&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) top = fmax(top, v[i]);
  });
  top = row_reduce(top, device::Max{}, W(-INFINITY));
  W sum = 0;
  for_each([&](unsigned, W(&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exp_of<T>(v[i] - top);
  });
  sum = row_sum(sum);
  const W rest = logarithm ? log(sum) : 1 / sum;
  for_each([&](unsigned p, W(&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = logarithm ? v[i] - top - rest : exp_of<T>(v[i] - top) * rest;
    if (inside) store_pack(y + row * n, p, v);
  });
}

/// dx of one row: y (dy - sum y dy), or dy - exp(y) sum dy for the logarithm.
template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, int64_t rows, int64_t n) {
  using W = wide<T>;
  constexpr int N = Row::N;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool inside = row < rows;
  Row out;
  Row slope;
  out.load(inside ? y + row * n : y, n);
  slope.load(inside ? dy + row * n : dy, n);
  const auto for_each = [&](auto&& f) {
    Row::for_each_pack(n, [&](int k, unsigned p) {
      W a[N], b[N];
      out.get(k, p, a);
      slope.get(k, p, b);
      f(p, a, b);
    });
  };
  W sum = 0;
  for_each([&](unsigned, W(&a)[N], W(&b)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum += logarithm ? b[i] : a[i] * b[i];
  });
  sum = row_sum(sum);
  for_each([&](unsigned p, W(&a)[N], W(&b)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      a[i] = logarithm ? b[i] - exp_of<T>(a[i]) * sum : a[i] * (b[i] - sum);
    if (inside) store_pack(dx + row * n, p, a);
  });
}

/// Calls f(Type<Row>, block) as visit_shared_row does, but rows of up to 384 single elements are
/// held in as many as a warp needs: others cost instructions that skip them.
template <class T, int held_bytes, class F>
void visit_softmax_row(bool aligned, int64_t rows, int64_t n, Device device, F&& f) {
  using D = device_type<T>;
  constexpr int held = 12, of_lanes = 4;
  const bool single = !aligned || n % device::pack_size<D> != 0;
  if (single && n > 32 * of_lanes && n <= 32 * held)
    return f(Type<HeldRow<D, 1, held>>{}, row_block(rows, n, 1, held, device));
  visit_shared_row<T, held_bytes>(aligned, rows, n, device, std::forward<F>(f));
}

template <bool logarithm>
void launch(const char* op, const Tensor& x, const Tensor& y, Stream stream) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    const auto run = [&]<class Row>(Type<Row>, dim3 block) {
      const unsigned grid = grid_of(op, ceil_div(rows, block.y));
      softmax_kernel<device_type<T>, Row, logarithm>
          <<<grid, block, 0, native(stream)>>>(pointer<T>(x), pointer<T>(y), rows, n);
    };
    visit_softmax_row<T, 128>(aligned16(x, y), rows, n, x.device(), run);
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

template <bool logarithm>
void launch_backward(const char* op, const Tensor& y, const Tensor& dy, const Tensor& dx,
                     Stream stream) {
  const int64_t n = y.size(-1), rows = y.numel() / n;
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) {
    const auto run = [&]<class Row>(Type<Row>, dim3 block) {
      const unsigned grid = grid_of(op, ceil_div(rows, block.y));
      softmax_backward_kernel<device_type<T>, Row, logarithm><<<grid, block, 0, native(stream)>>>(
          pointer<T>(y), pointer<T>(dy), pointer<T>(dx), rows, n);
    };
    visit_softmax_row<T, 64>(aligned16(y, dy, dx), rows, n, y.device(), run);
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

/// Rows of one element: 1, or 0 for the logarithm, but where it is not finite.
template <bool logarithm>
struct Alone {
  template <class W>
  __device__ W operator()(W x) const {
    return logarithm ? x - x : x - x + 1;
  }
};
template <class T, bool logarithm>
struct AloneBackward {
  using W = wide<T>;
  __device__ W operator()(W y, W dy) const {
    return logarithm ? dy - exp_of<T>(y) * dy : y * (dy - y * dy);
  }
};

/// Whether rows are of one element; then y is made of them.
template <bool logarithm>
bool are_alone(const char* op, const Tensor& x, const Tensor& y, Stream stream) {
  if (x.size(-1) != 1) return false;
  visit_floating(op, x.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, Alone<logarithm>{}, y, stream, x); });
  return true;
}
template <bool logarithm>
bool are_alone_backward(const char* op, const Tensor& y, const Tensor& dy, const Tensor& dx,
                        Stream stream) {
  if (y.size(-1) != 1) return false;
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) {
    map_alike<T>(op, AloneBackward<device_type<T>, logarithm>{}, dx, stream, y, dy);
  });
  return true;
}

}  // namespace

void softmax(const Tensor& x, const Tensor& y, Stream stream) {
  if (!are_alone<false>("softmax", x, y, stream)) launch<false>("softmax", x, y, stream);
}

void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  if (!are_alone_backward<false>("softmax_backward", y, dy, dx, stream))
    launch_backward<false>("softmax_backward", y, dy, dx, stream);
}

void log_softmax(const Tensor& x, const Tensor& y, Stream stream) {
  if (!are_alone<true>("log_softmax", x, y, stream)) launch<true>("log_softmax", x, y, stream);
}

void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  if (!are_alone_backward<true>("log_softmax_backward", y, dy, dx, stream))
    launch_backward<true>("log_softmax_backward", y, dy, dx, stream);
}

}  // namespace bs::cuda
