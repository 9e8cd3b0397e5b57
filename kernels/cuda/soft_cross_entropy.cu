#include <bs/kernels/soft_cross_entropy.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/tile/running_sum.cuh>
#include <bs/kernels/cuda/integers.cuh>
#include <bs/kernels/cuda/row_packs.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

/// What logits x and weights w of a row come to: `dot` is the sum of w (x - base), the base being
/// the largest logit so far. So no more is lost than by taking each difference from the end's base.
template <class W>
struct WeightedLogits {
  device::RunningSum<W> exponentials;
  W total = 0, dot = 0;  ///< of weights, and of weighted logits
  W counts = 0;          ///< 1 where a weight is not zero

  __device__ W base() const { return finite_or_zero(exponentials.top); }

  template <int N>
  __device__ void add(const W (&x)[N], const W (&w)[N]) {
    const W before = base();
    exponentials.add(x);
    const W now = base();
    if (now != before) dot -= total * (now - before);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (w[i] == 0) continue;  // whatever the logit
      dot += w[i] * (x[i] - now);
      total += w[i];
      counts = 1;
    }
  }
  /// Merges what the threads of the row have; every one gets the whole.
  __device__ void merge() {
    const W top = row_reduce(exponentials.top, device::Max{}, W(-INFINITY));
    const W sum = row_sum(exponentials.sum_under(top));
    dot = row_sum(dot + total * (base() - finite_or_zero(top)));
    total = row_sum(total);
    counts = row_reduce(counts, device::Max{}, W(0));
    exponentials = {top, top - top + sum};  // NaN where the largest logit is infinite
  }

 private:
  static __device__ W finite_or_zero(W top) { return ::abs(top) < W(INFINITY) ? top : W(0); }
};

/// A row's logits and weights, in packs of N.
template <class T, class V, int N>
struct WeightedRow {
  using W = wide<T>;
  static constexpr unsigned ahead = sizeof(T) == 8 ? 1 : 4;  ///< loads on their way
  const Raw<T, N>* logits;
  const Raw<V, N>* weights;
  unsigned count;

  __device__ WeightedRow(const T* x, const V* w, int64_t row, int64_t n)
      : logits(reinterpret_cast<const Raw<T, N>*>(x + row * n)),
        weights(reinterpret_cast<const Raw<V, N>*>(w + row * n)),
        count(static_cast<unsigned>(n / N)) {}

  /// Calls f(pack number, logits, weights) for the thread's packs, the first or the last ones
  /// first.
  template <bool forwards, class F>
  __device__ void for_each(F&& f) const {
    const auto number = [&](unsigned p) { return forwards ? p : count - 1 - p; };
    for (unsigned done = threadIdx.x; done < count; done += ahead * blockDim.x) {
      Raw<T, N> x[ahead];
      Raw<V, N> w[ahead];
#pragma unroll
      for (unsigned k = 0; k < ahead; ++k) {
        const unsigned p = done + k * blockDim.x;
        if (p >= count) continue;
        x[k] = logits[number(p)];
        w[k] = weights[number(p)];
      }
#pragma unroll
      for (unsigned k = 0; k < ahead; ++k) {
        const unsigned p = done + k * blockDim.x;
        if (p >= count) break;
        W of_logits[N], of_weights[N];
        device::widen_pack<T, N>(x[k], of_logits);
        device::widen_pack<V, N>(w[k], of_weights);
        f(number(p), of_logits, of_weights);
      }
    }
  }
  __device__ WeightedLogits<W> sums() const {
    WeightedLogits<W> sums;
    for_each<true>([&](unsigned, const W(&x)[N], const W(&w)[N]) { sums.add(x, w); });
    sums.merge();
    return sums;
  }
};

template <class T, class V, int N>
__global__ void __launch_bounds__(most_row_threads)
    soft_cross_entropy_kernel(const T* logits, const V* weights, wide<T>* loss, int64_t rows,
                              int64_t n) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const auto sums = WeightedRow<T, V, N>(logits, weights, row, n).sums();
  if (threadIdx.x > 0) return;
  loss[row] = sums.counts > 0 ? sums.total * ::log(sums.exponentials.sum) - sums.dot : wide<T>(0);
}

/// Threads of a row, at most: many, so that the few rows at once fit into L2.
template <class T, class V>
constexpr int backward_threads = sizeof(V) > sizeof(T) ? 512 : 1024;

/// Reads a row twice, from its end the second time, which is still in the caches.
template <class T, class V, int N>
__global__ void __launch_bounds__(backward_threads<T, V>)
    soft_cross_entropy_backward_kernel(const T* logits, const V* weights, const wide<T>* dloss,
                                       T* dlogits, int64_t rows, int64_t n) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const WeightedRow<T, V, N> of(logits, weights, row, n);
  const auto sums = of.sums();
  const W base = sums.base(), share = sums.total / sums.exponentials.sum, slope = dloss[row];
  of.template for_each<false>([&](unsigned p, W(&x)[N], const W(&w)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      x[i] =
          slope * (device::exp2_of((x[i] - base) * device::RunningSum<W>::log2_e) * share - w[i]);
    const auto pack = device::narrow_pack<T, N>(x);
    device::store_once(reinterpret_cast<Raw<T, N>*>(dlogits + row * n) + p,
                       reinterpret_cast<const Raw<T, N>&>(pack));
  });
}

/// Elements, or one number where there are none.
template <class T>
struct Weights {
  const T* data;
  wide<T> number;
};

/// What a target that is not a class comes to, NaN, is that of all classes of its row. Where these
/// weigh alike, all packs but the target's are one.
template <class T, int N, bool alike>
__global__ void __launch_bounds__(RowPacks::threads)
    target_weights_kernel(const Integers targets, int64_t ignored, const Weights<T> hard,
                          const Weights<T> shares, T* weights, const RowPacks packs) {
  using W = wide<T>;
  const RowPacks::Stretch at = packs.stretch();
  if (at.row >= packs.rows) return;
  const int64_t target = targets[at.row];
  const bool counts = target != ignored, is_class = target >= 0 && target < packs.packs * N;
  W weight = hard.data ? device::widen(hard.data[at.row]) : is_class ? hard.number : W(NAN);
  if (!counts) weight = 0;
  const W absent = !counts || is_class ? W(0) : W(NAN), share = counts ? shares.number : W(0);
  T* const to = weights + at.row * packs.packs * N;
  if constexpr (alike) {
    at.fill_but_one<N>(to, device::narrow<T>(share + absent), target,
                       device::narrow<T>(share + weight));
  } else {
    const T* const added = counts ? shares.data : nullptr;
    at.for_each([&](unsigned number) {
      const auto p = static_cast<unsigned>(at.first) + number;
      W values[N];
      get_over<N>(added, p, W(0), values);
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] += int64_t{p} * N + i == target ? weight : absent;
      store_pack<N>(to, p, values);
    });
  }
}

/// Calls f(Type<T>, Type<V>, N, grid, block) with the device's types of logits and weights.
template <class F>
void visit(const char* op, const Tensor& logits, const Tensor& weights, bool aligned, F&& f) {
  const int64_t n = logits.size(-1), rows = logits.numel() / n;
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(aligned, n, [&]<int N>(std::integral_constant<int, N> pack) {
      constexpr int packs_at_once = 8;
      dim3 block = row_block(rows, n, N, packs_at_once, logits.device());
      if (block.x == 0) block = dim3(most_row_threads);
      const unsigned grid = grid_of(op, ceil_div(rows, block.y));
      if (weights.dtype() == logits.dtype()) return f(Type<D>{}, Type<D>{}, pack, grid, block);
      if constexpr (sizeof(D) == 2) f(Type<D>{}, Type<wide<D>>{}, pack, grid, block);
    });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace

void soft_cross_entropy(const Tensor& logits, const Tensor& weights, const Tensor& loss,
                        Stream stream) {
  const auto run = [&]<class T, class V, int N>(Type<T>, Type<V>, std::integral_constant<int, N>,
                                                unsigned grid, dim3 block) {
    soft_cross_entropy_kernel<T, V, N><<<grid, block, 0, native(stream)>>>(
        static_cast<const T*>(logits.data()), static_cast<const V*>(weights.data()),
        loss.data<wide<T>>(), loss.numel(), logits.size(-1));
  };
  visit("soft_cross_entropy", logits, weights, aligned16(logits, weights), run);
}

void soft_cross_entropy_backward(const Tensor& logits, const Tensor& weights, const Tensor& dloss,
                                 const Tensor& dlogits, Stream stream) {
  const auto run = [&]<class T, class V, int N>(Type<T>, Type<V>, std::integral_constant<int, N>,
                                                unsigned grid, dim3 block) {
    if (block.x == most_row_threads) block.x = backward_threads<T, V>;
    soft_cross_entropy_backward_kernel<T, V, N><<<grid, block, 0, native(stream)>>>(
        static_cast<const T*>(logits.data()), static_cast<const V*>(weights.data()),
        dloss.data<wide<T>>(), static_cast<T*>(dlogits.data()), dloss.numel(), logits.size(-1));
  };
  visit("soft_cross_entropy_backward", logits, weights, aligned16(logits, weights, dlogits), run);
}

void target_weights(const Tensor& targets, int64_t ignored, const Operand& rows,
                    const Operand& shares, const Tensor& weights, Stream stream) {
  const char* op = "target_weights";
  const int64_t n = weights.size(-1);
  visit_floating(op, weights.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    // As elements have it: rounded.
    const auto weights_of = [](const Operand& x) {
      return Weights<D>{maybe<T>(x.tensor), static_cast<wide<D>>(T(x.number.to<wide<D>>()))};
    };
    visit_pack<T>(aligned16(weights, shares.tensor), n, [&]<int N>(std::integral_constant<int, N>) {
      const RowPacks packs(targets.numel(), n / N);
      const auto kernel = shares.tensor.defined() ? target_weights_kernel<D, N, false>
                                                  : target_weights_kernel<D, N, true>;
      kernel<<<packs.grid(op), packs.block(), 0, native(stream)>>>(
          integers(targets), ignored, weights_of(rows), weights_of(shares), pointer<T>(weights),
          packs);
    });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
