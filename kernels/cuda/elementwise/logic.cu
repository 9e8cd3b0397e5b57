#include <bs/kernels/logic.h>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {

template <class T>
struct Close {
  using W = std::conditional_t<std::is_integral_v<T>, double, device::wide<T>>;
  W rtol, atol;
  bool equal_nan;

  __device__ bool operator()(device::wide<T> a, device::wide<T> b) const {
    if constexpr (std::is_integral_v<T>) {
      if (a == b) return true;
      // Exact before it is compared.
      const auto p = static_cast<uint64_t>(a), q = static_cast<uint64_t>(b);
      const auto apart = static_cast<double>(a > b ? p - q : q - p);
      return apart <= atol + rtol * ::fabs(static_cast<double>(b));
    } else {
      const bool near = ::abs(a - b) <= atol + rtol * ::abs(b) && ::abs(b) < W(INFINITY);
      return a == b || near || (equal_nan && a != a && b != b);
    }
  }
};

constexpr int threads = 256;

/// Clears `all` where an item of N elements has one that is not close, U items a thread; then the
/// `rest` elements behind them, where there is one axis. Whoever clears it, the answer is the same.
template <int N, int U, class T>
__global__ void __launch_bounds__(threads)
    all_close_kernel(const Close<T> close, const __grid_constant__ Walk<2> walk, uint32_t count,
                     uint32_t rest, Source<T> a, Source<T> b, bool* all) {
  const uint32_t first = blockIdx.x * (threads * U) + threadIdx.x;
  device::Raw<T, N> x[U], y[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const uint32_t i = first + u * threads;
    if (i >= count) continue;
    int32_t at[2];
    walk.locate(i, at);
    x[u] = a.template load<N>(at[0]);
    y[u] = b.template load<N>(at[1]);
  }
  bool found = false;
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * threads >= count) continue;
    device::wide<T> v[N], w[N];
    a.template widen<N>(x[u], v);
    b.template widen<N>(y[u], w);
#pragma unroll
    for (int i = 0; i < N; ++i) found |= !close(v[i], w[i]);
  }
  if (N > 1 && first < rest) {
    const int64_t i = int64_t{count} * N + first;
    found |= !close(a.read(i), b.read(i));
  }
  if (__syncthreads_or(found) && threadIdx.x == 0) *all = false;
}

template <int N, class T>
void launch(const Close<T>& close, const StridedLoop<2>& loop, Source<T> a, Source<T> b, bool* all,
            Stream stream) {
  constexpr int U = 4;
  const int64_t total = loop.numel(), count = total / N;
  a.repeats = loop.inner_stride(0) == 0;
  b.repeats = loop.inner_stride(1) == 0;
  const auto grid = static_cast<unsigned>(std::max<int64_t>(ceil_div(count, threads * U), 1));
  all_close_kernel<N, U>
      <<<grid, threads, 0, native(stream)>>>(close, Walk<2>(loop, N), static_cast<uint32_t>(count),
                                             static_cast<uint32_t>(total - count * N), a, b, all);
}

template <class T>
void run(const Tensor& a, const Tensor& b, const CloseOptions& options, bool* all, Stream stream) {
  using C = Close<T>;
  const C close{static_cast<typename C::W>(options.rtol), static_cast<typename C::W>(options.atol),
                options.equal_nan};
  // Bools are bytes of 0 or 1.
  const auto *x = static_cast<const T*>(a.data()), *y = static_cast<const T*>(b.data());
  constexpr int N = device::pack_size<T>;
  for_each_part(
      ordered_loop<2>(a.shape(), {a.strides(), b.strides()}), {},
      [&](const StridedLoop<2>& part, const Offsets<2>& from) {
        const Source<T> p{x + from[0], {}, false}, q{y + from[1], {}, false};
        const bool whole = part.rank == 1 || part.inner() % N == 0;
        if (whole && detail::packable<N>(part, 0, p.data) && detail::packable<N>(part, 1, q.data)) {
          launch<N>(close, part, p, q, all, stream);
        } else {
          launch<1>(close, part, p, q, all, stream);
        }
      });
}

}  // namespace

void all_close(const Tensor& a, const Tensor& b, const CloseOptions& options, const Tensor& close,
               Stream stream) {
  const char* op = "allclose";
  auto* const all = static_cast<bool*>(close.data());
  BS_CUDA_CHECK(cudaMemsetAsync(all, 1, sizeof(bool), native(stream)));
  const Tensor second = detail::in_order(b, a, stream);
  if (is_floating(a.dtype())) {
    visit_floating(op, a.dtype(),
                   [&]<class T>(Type<T>) { run<device_type<T>>(a, second, options, all, stream); });
  } else if (a.dtype() == u8 || a.dtype() == boolean) {
    run<uint8_t>(a, second, options, all, stream);
  } else {
    visit_index(op, a.dtype(), [&]<class T>(Type<T>) { run<T>(a, second, options, all, stream); });
  }
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
