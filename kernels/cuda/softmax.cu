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

/// The largest of a row, and the sum of exponentials less that.
template <class W>
struct SoftmaxState {
  W top, sum;
};

/// Calls f(pack number, its elements) for a thread's packs of a row.
template <class Row, class F>
__device__ void for_each_pack(const Row& in, int64_t n, F&& f) {
  Row::for_each_pack(n, [&](int k, unsigned p) {
    typename Row::W v[Row::N];
    in.get(k, p, v);
    f(p, v);
  });
}
/// The same of two rows, f(pack number, elements of both).
template <class Row, class F>
__device__ void for_each_pack(const Row& in, const Row& other, int64_t n, F&& f) {
  Row::for_each_pack(n, [&](int k, unsigned p) {
    typename Row::W a[Row::N], b[Row::N];
    in.get(k, p, a);
    other.get(k, p, b);
    f(p, a, b);
  });
}

/// @tparam is_part whether nothing but -inf has a sum of 0 then, since others may have more
template <bool is_part, class Row>
__device__ SoftmaxState<typename Row::W> softmax_state(const Row& in, int64_t n) {
  using W = typename Row::W;
  W top = -INFINITY, sum = 0;
  for_each_pack(in, n, [&](unsigned, W(&v)[Row::N]) {
#pragma unroll
    for (int i = 0; i < Row::N; ++i) top = fmax(top, v[i]);
  });
  top = row_reduce(top, device::Max{}, W(-INFINITY));
  const W base = is_part && top == -INFINITY ? 0 : top;
  for_each_pack(in, n, [&](unsigned, W(&v)[Row::N]) {
#pragma unroll
    for (int i = 0; i < Row::N; ++i) sum += exp_of<typename Row::T>(v[i] - base);
  });
  return {top, row_sum(sum)};
}

template <bool logarithm, class Row, class T>
__device__ void store_softmax(const Row& in, T* y, int64_t n, SoftmaxState<wide<T>> of,
                              bool inside) {
  using W = wide<T>;
  const W rest = logarithm ? log(of.sum) : 1 / of.sum;
  for_each_pack(in, n, [&](unsigned p, W(&v)[Row::N]) {
#pragma unroll
    for (int i = 0; i < Row::N; ++i)
      v[i] = logarithm ? v[i] - of.top - rest : exp_of<T>(v[i] - of.top) * rest;
    if (inside) store_pack(y, p, v);
  });
}

/// Softmax, or its logarithm, of one row: one read and one write where it is held.
template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_kernel(const T* x, T* y, int64_t rows, int64_t n) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool inside = row < rows;  // lanes outside take part in what the warp reduces
  Row in;
  in.load(inside ? x + row * n : x, n);
  store_softmax<logarithm>(in, y + row * n, n, softmax_state<false>(in, n), inside);
}

/// What the gradient takes a sum of: y dy, or dy for the logarithm.
template <bool logarithm, class Row>
__device__ typename Row::W slope_sum(const Row& out, const Row& slope, int64_t n) {
  using W = typename Row::W;
  W sum = 0;
  for_each_pack(out, slope, n, [&](unsigned, W(&a)[Row::N], W(&b)[Row::N]) {
#pragma unroll
    for (int i = 0; i < Row::N; ++i) sum += logarithm ? b[i] : a[i] * b[i];
  });
  return row_sum(sum);
}

template <bool logarithm, class Row, class T>
__device__ void store_gradient(const Row& out, const Row& slope, T* dx, int64_t n, wide<T> sum,
                               bool inside) {
  using W = wide<T>;
  for_each_pack(out, slope, n, [&](unsigned p, W(&a)[Row::N], W(&b)[Row::N]) {
#pragma unroll
    for (int i = 0; i < Row::N; ++i)
      a[i] = logarithm ? b[i] - exp_of<T>(a[i]) * sum : a[i] * (b[i] - sum);
    if (inside) store_pack(dx, p, a);
  });
}

/// dx of one row: y (dy - sum y dy), or dy - exp(y) sum dy for the logarithm.
template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, int64_t rows, int64_t n) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool inside = row < rows;
  Row out, slope;
  out.load(inside ? y + row * n : y, n);
  slope.load(inside ? dy + row * n : dy, n);
  store_gradient<logarithm>(out, slope, dx + row * n, n, slope_sum<logarithm>(out, slope, n),
                            inside);
}

/// Rows that are too long for the registers of a block: a block has a part of a row, and reads it
/// again when it knows what the others have found. One block would read its row three times.
struct RowParts {
  int64_t elements;  ///< of a part
  unsigned count;    ///< of a row
  int64_t n;         ///< elements of a row

  struct Part {
    int64_t row, first, size;
  };
  __device__ Part part() const {
    const int64_t row = blockIdx.x / count, first = blockIdx.x % count * elements;
    return {row, row * n + first, min(elements, n - first)};
  }
};

template <class T, class Row>
__global__ void __launch_bounds__(most_row_threads)
    softmax_states_kernel(const T* x, SoftmaxState<wide<T>>* states, const RowParts parts) {
  const auto part = parts.part();
  Row in;
  in.load(x + part.first, part.size);
  const auto state = softmax_state<true>(in, part.size);
  if (threadIdx.x == 0) states[blockIdx.x] = state;
}

template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_parts_kernel(const T* x, T* y, const SoftmaxState<wide<T>>* states,
                         const RowParts parts) {
  using W = wide<T>;
  const auto part = parts.part();
  Row in;
  in.load(x + part.first, part.size);
  const auto* const each = states + part.row * parts.count;
  W top = -INFINITY, sum = 0;
  for (unsigned i = threadIdx.x; i < parts.count; i += blockDim.x) top = fmax(top, each[i].top);
  top = row_reduce(top, device::Max{}, W(-INFINITY));
  for (unsigned i = threadIdx.x; i < parts.count; i += blockDim.x)
    sum += each[i].sum * exp_of<T>(each[i].top - top);
  store_softmax<logarithm>(in, y + part.first, part.size, {top, row_sum(sum)}, true);
}

template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    slope_sums_kernel(const T* y, const T* dy, wide<T>* sums, const RowParts parts) {
  const auto part = parts.part();
  Row out, slope;
  out.load(y + part.first, part.size);
  slope.load(dy + part.first, part.size);
  const wide<T> sum = slope_sum<logarithm>(out, slope, part.size);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class T, class Row, bool logarithm>
__global__ void __launch_bounds__(most_row_threads)
    softmax_backward_parts_kernel(const T* y, const T* dy, T* dx, const wide<T>* sums,
                                  const RowParts parts) {
  const auto part = parts.part();
  Row out, slope;
  out.load(y + part.first, part.size);
  slope.load(dy + part.first, part.size);
  wide<T> sum = 0;
  for (unsigned i = threadIdx.x; i < parts.count; i += blockDim.x)
    sum += sums[part.row * parts.count + i];
  store_gradient<logarithm>(out, slope, dx + part.first, part.size, row_sum(sum), true);
}

/// Calls f(Type<Row>, block) as visit_shared_row does, but rows of up to 384 single elements are
/// held in as many as a warp needs: others cost instructions that skip them. Of rows of up to four
/// packs a lane has one, so that lanes read side by side.
template <class T, int held_bytes, class F>
void visit_softmax_row(bool aligned, int64_t rows, int64_t n, Device device, F&& f) {
  using D = device_type<T>;
  constexpr int held = 12, of_lanes = 4;
  const bool single = !aligned || n % device::pack_size<D> != 0;
  if (single && n > 32 * of_lanes && n <= 32 * held)
    return f(Type<HeldRow<D, 1, held>>{}, row_block(rows, n, 1, held, device));
  if (!single && n <= of_lanes * device::pack_size<D>) {
    visit_rows_of_packs<T>(aligned, n, f);
    return;
  }
  visit_shared_row<T, held_bytes>(aligned, rows, n, device, std::forward<F>(f));
}

/// Calls f(Type<Row>, parts, blocks) for rows that are to be split, and says whether they are. It
/// pays from 128 KiB on: fewer are read again by one block as fast as by a second launch.
template <class T, int held_bytes, class F>
bool visit_parts(const char* op, bool aligned, const Tensor& x, F&& f) {
  constexpr int64_t least_bytes = 128 << 10;
  constexpr int busy_blocks = 4;  // of a multiprocessor
  using D = device_type<T>;
  const int64_t n = x.size(-1), rows = x.numel() / n;
  if (n * static_cast<int64_t>(sizeof(T)) <= least_bytes) return false;
  const int64_t wanted = int64_t{device_properties(x.device()).multiprocessors} * busy_blocks;
  visit_pack<T>(aligned, n, [&]<int N>(std::integral_constant<int, N>) {
    constexpr int held = held_bytes / static_cast<int>(sizeof(T)) / std::max(N, 2);
    constexpr int64_t least = most_row_threads * N;
    const int64_t several = std::min(ceil_div(wanted, rows), ceil_div(n, least));
    const int64_t count = std::max(ceil_div(n, least * held), several);
    const int64_t elements = ceil_div(n / N, count) * N, parts = ceil_div(n, elements);
    f(Type<HeldRow<D, N, held>>{}, RowParts{elements, static_cast<unsigned>(parts), n},
      grid_of(op, rows * parts));
  });
  return true;
}

template <class T, bool logarithm>
bool launch_parts(const char* op, const Tensor& x, const Tensor& y, Stream stream) {
  using D = device_type<T>;
  using State = SoftmaxState<wide<D>>;
  const auto run = [&]<class Row>(Type<Row>, const RowParts& parts, unsigned grid) {
    const Tensor states =
        Tensor::empty({int64_t{grid} * static_cast<int64_t>(sizeof(State))}, u8, x.device());
    auto* const each = static_cast<State*>(states.data());
    softmax_states_kernel<D, Row>
        <<<grid, most_row_threads, 0, native(stream)>>>(pointer<T>(x), each, parts);
    softmax_parts_kernel<D, Row, logarithm>
        <<<grid, most_row_threads, 0, native(stream)>>>(pointer<T>(x), pointer<T>(y), each, parts);
  };
  return visit_parts<T, 128>(op, aligned16(x, y), x, run);
}

template <class T, bool logarithm>
bool launch_backward_parts(const char* op, const Tensor& y, const Tensor& dy, const Tensor& dx,
                           Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  const auto run = [&]<class Row>(Type<Row>, const RowParts& parts, unsigned grid) {
    const Tensor sums = Tensor::empty({grid}, dtype_of<W>, y.device());
    slope_sums_kernel<D, Row, logarithm><<<grid, most_row_threads, 0, native(stream)>>>(
        pointer<T>(y), pointer<T>(dy), pointer<W>(sums), parts);
    softmax_backward_parts_kernel<D, Row, logarithm><<<grid, most_row_threads, 0, native(stream)>>>(
        pointer<T>(y), pointer<T>(dy), pointer<T>(dx), pointer<W>(sums), parts);
  };
  return visit_parts<T, 64>(op, aligned16(y, dy, dx), y, run);
}

template <bool logarithm>
void launch(const char* op, const Tensor& x, const Tensor& y, Stream stream) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    if (launch_parts<T, logarithm>(op, x, y, stream)) return;
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
    if (launch_backward_parts<T, logarithm>(op, y, dy, dx, stream)) return;
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
