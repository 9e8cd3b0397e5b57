#include <bs/kernels/loss.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/device/tile/running_sum.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::exp_of;
using device::wide;
using device::widen;

/// Class numbers of either width.
struct Targets {
  const void* data;
  bool wide;
  int64_t ignored;

  __device__ int64_t operator[](int64_t row) const {
    return wide ? static_cast<const int64_t*>(data)[row] : static_cast<const int32_t*>(data)[row];
  }
};

Targets targets_of(const Tensor& targets, int64_t ignored) {
  return {targets.data(), targets.dtype() == i64, ignored};
}

/// The sum of exponentials over the threads of a row, of what each has seen.
template <class W>
__device__ device::RunningSum<W> finish(const device::RunningSum<W>& running) {
  const W top = row_reduce(running.top, device::Max{}, W(-INFINITY));
  return {top, row_sum(running.sum_under(top))};
}

/// What rounding took from sum = a + b (Knuth, 1969).
template <class W>
__device__ W rest_of_sum(W a, W b, W sum) {
  const W of_b = sum - a;
  return (a - (sum - of_b)) + (b - of_b);
}

/// The sum of how far a thread's logits are below the largest so far.
template <class W>
struct Below {
  W seen = 0, sum = 0;

  /// They are `values`, which brought the largest from `before` to `now`.
  template <int N>
  __device__ void add(const W (&values)[N], W before, W now) {
    if (now != before) sum += seen * (now - before);
    seen += N;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += now - values[i];
  }
  /// Over the threads of the row, each of which saw up to `own`.
  __device__ W whole(W own, W largest) const {
    return row_sum(own == largest ? sum : sum + seen * (largest - own));
  }
};

/// lse and loss of one row. Distances from the largest logit are exact where large logits are close
/// to each other; those from lse are not.
template <class T, int N>
__global__ void __launch_bounds__(most_row_threads)
    cross_entropy_kernel(const T* logits, Targets targets, wide<T>* lse, wide<T>* lse_rest,
                         wide<T>* losses, int64_t rows, int64_t n, wide<T> smoothing) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const T* x = logits + row * n;
  device::RunningSum<W> running;
  Below<W> below;
  const auto* packs = reinterpret_cast<const device::Raw<T, N>*>(x);
  const auto count = static_cast<unsigned>(n / N);
  constexpr unsigned ahead = 4;  // loads on their way
  for (unsigned p = threadIdx.x; p < count; p += ahead * blockDim.x) {
    device::Raw<T, N> raw[ahead];
#pragma unroll
    for (unsigned k = 0; k < ahead; ++k)
      if (p + k * blockDim.x < count) raw[k] = packs[p + k * blockDim.x];
#pragma unroll
    for (unsigned k = 0; k < ahead; ++k) {
      if (p + k * blockDim.x >= count) break;
      W values[N];
      device::widen_pack<T, N>(raw[k], values);
      const W before = running.base();
      running.add(values);
      if (smoothing > 0) below.add(values, before, running.base());
    }
  }
  const device::RunningSum<W> whole = finish(running);
  const W base = whole.base(), log_sum = ::log(whole.sum);
  W distances = 0;
  if (smoothing > 0) distances = below.whole(running.base(), base);
  if (threadIdx.x > 0) return;
  const int64_t target = targets[row];
  lse[row] = base + log_sum;
  lse_rest[row] = rest_of_sum(base, log_sum, lse[row]);
  W loss = 0;
  if (target == targets.ignored) {
    loss = 0;
  } else if (target < 0 || target >= n) {
    loss = NAN;
  } else {
    loss = (1 - smoothing) * ((base - widen(x[target])) + log_sum);
    if (smoothing > 0) loss += smoothing * (distances / n + log_sum);
  }
  losses[row] = loss;
}

/// dlogits of one row.
template <class T, int N>
__global__ void __launch_bounds__(most_row_threads)
    cross_entropy_backward_kernel(const T* logits, Targets targets, const wide<T>* lse,
                                  const wide<T>* lse_rest, const wide<T>* weight,
                                  const wide<T>* dloss, int64_t dloss_step, T* dlogits,
                                  int64_t rows, int64_t n, wide<T> smoothing) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int64_t target = targets[row];
  const bool counted = target != targets.ignored;
  W scale = dloss[row * dloss_step] * (weight ? *weight : W(1));
  if (counted && (target < 0 || target >= n)) scale = NAN;
  const W log_sum = lse[row], rest = lse_rest ? ::exp(-lse_rest[row]) : W(1);
  const W share = smoothing / n;
  const auto* from = reinterpret_cast<const device::Raw<T, N>*>(logits + row * n);
  for (int64_t p = threadIdx.x; p < n / N; p += blockDim.x) {
    W values[N] = {};
    if (counted) {
      device::widen_pack<T, N>(from[p], values);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const W hit = p * N + i == target ? 1 - smoothing : W(0);
        values[i] = scale * (rest * exp_of<T>(values[i] - log_sum) - share - hit);
      }
    }
    store_pack(dlogits + row * n, static_cast<unsigned>(p), values);
  }
}

/// The sum or mean of the counted rows' losses by one block, in double and in a fixed order.
template <class W>
__global__ void reduce_kernel(const W* losses, Targets targets, int64_t rows, W* loss, W* weight) {
  double sum = 0;
  double count = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    if (targets[row] != targets.ignored) {
      sum += losses[row];
      count += 1;
    }
  sum = device::block_reduce(sum, device::Sum{}, 0.0);
  count = device::block_reduce(count, device::Sum{}, 0.0);
  if (threadIdx.x > 0) return;
  const double each = weight ? 1 / count : 1.0;
  *loss = static_cast<W>(sum * each);
  if (weight) *weight = static_cast<W>(each);
}

/// A row is read once, so that the threads need not hold all of it.
template <class T, int N>
dim3 block_for(const Tensor& logits, int64_t rows) {
  constexpr int packs_at_once = 8;
  const dim3 block = row_block(rows, logits.size(-1), N, packs_at_once, logits.device());
  return block.x > 0 ? block : dim3(most_row_threads);
}

}  // namespace

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& lse,
                   const Tensor& lse_rest, const Tensor& losses, const Tensor& loss,
                   const Tensor& weight, const CrossEntropyOptions& options, Stream stream) {
  const int64_t n = logits.size(-1);
  const int64_t rows = targets.numel();
  const Targets wanted = targets_of(targets, options.ignore_index);
  visit_floating("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    visit_pack<T>(aligned16(logits), n, [&]<int N>(std::integral_constant<int, N>) {
      const dim3 block = block_for<T, N>(logits, rows);
      const unsigned grid = grid_of("cross_entropy", ceil_div(rows, block.y));
      if (grid == 0) return;
      cross_entropy_kernel<D, N><<<grid, block, 0, native(stream)>>>(
          pointer<T>(logits), wanted, pointer<W>(lse), pointer<W>(lse_rest), pointer<W>(losses),
          rows, n, static_cast<W>(options.label_smoothing));
      BS_CUDA_CHECK_LAUNCH("cross_entropy");
    });
    if (!loss.defined()) return;
    reduce_kernel<<<1, 1024, 0, native(stream)>>>(pointer<W>(losses), wanted, rows,
                                                  pointer<W>(loss), maybe<W>(weight));
    BS_CUDA_CHECK_LAUNCH("cross_entropy");
  });
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& lse,
                            const Tensor& lse_rest, const Tensor& weight, const Tensor& dloss,
                            const Tensor& dlogits, const CrossEntropyOptions& options,
                            Stream stream) {
  const int64_t n = logits.size(-1);
  const int64_t rows = targets.numel();
  visit_floating("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    visit_pack<T>(aligned16(logits, dlogits), n, [&]<int N>(std::integral_constant<int, N>) {
      const dim3 block = block_for<T, N>(logits, rows);
      const unsigned grid = grid_of("cross_entropy_backward", ceil_div(rows, block.y));
      cross_entropy_backward_kernel<D, N><<<grid, block, 0, native(stream)>>>(
          pointer<T>(logits), targets_of(targets, options.ignore_index), pointer<W>(lse),
          maybe<W>(lse_rest), maybe<W>(weight), pointer<W>(dloss),
          options.reduction == Reduction::none ? 1 : 0, pointer<T>(dlogits), rows, n,
          static_cast<W>(options.label_smoothing));
      BS_CUDA_CHECK_LAUNCH("cross_entropy_backward");
    });
  });
}

}  // namespace bs::cuda
