#include <bs/kernels/ctc_loss.h>
#include <bs/kernels/cuda/transducer/ctc_plan.h>
#include <bs/kernels/scaled.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/device/tile/running_sum.cuh>
#include <bs/kernels/cuda/integers.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

constexpr int gradient_threads = 128;  ///< of a row of the gradient
constexpr int link_threads = 1024;     ///< of an utterance's labels

/// Sizes, lengths and labels of a batch.
struct Batch {
  int64_t frames, size, classes, labels, blank;
  Integers input_lengths, target_lengths, targets;

  __device__ int inputs_of(int64_t b) const { return static_cast<int>(input_lengths[b]); }
  __device__ int labels_of(int64_t b) const { return static_cast<int>(target_lengths[b]); }
  __device__ bool fits(int64_t b) const {
    return input_lengths[b] >= 0 && input_lengths[b] <= frames && target_lengths[b] >= 0 &&
           target_lengths[b] <= labels;
  }
  __device__ int64_t class_of(int64_t b, int s) const {
    return s % 2 == 0 ? blank : targets[b * labels + s / 2];
  }
  __device__ bool is_label(int64_t k) const { return k >= 0 && k < classes && k != blank; }
  /// Whether a path may go from state s - 2 to s.
  __device__ bool skips(int64_t b, int s) const {
    return s % 2 == 1 && s >= 3 && class_of(b, s) != class_of(b, s - 2);
  }
  __device__ int64_t cell(int64_t b, int64_t t) const {
    return (b * frames + t) * (2 * labels + 1);
  }
};

Batch batch_of(const Tensor& x, const Tensor& input_lengths, const Tensor& target_lengths,
               const CtcLossResult& result, const CtcLossOptions& options) {
  return {x.size(0),
          x.size(1),
          x.size(2),
          result.targets.size(1),
          options.blank,
          integers(input_lengths),
          integers(target_lengths),
          integers(result.targets)};
}

/// alpha: of all paths up to a state, its own probability included; beta: of all after it.
template <class W>
struct Tables {
  Scaled<W>* alpha;
  Scaled<W>* beta;
  Scaled<W>* totals;
};

template <class W>
Tables<W> tables_of(const CtcLossResult& result) {
  return {static_cast<Scaled<W>*>(result.lattice.data()),
          static_cast<Scaled<W>*>(result.lattice.select(0, 1).data()),
          static_cast<Scaled<W>*>(result.totals.data())};
}

/// What the lattice reads of each row, side by side: the logarithm of the blank's probability and
/// of each label's, NaN of one that is no class; and log(sum(exp)) where x is what precedes
/// log-softmax. A warp a row.
template <class T>
__global__ void emission_kernel(const T* x, Batch batch, wide<T>* lse, wide<T>* emissions) {
  using W = wide<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= batch.frames * batch.size) return;
  const T* from = x + row * batch.classes;
  W log_sum = 0;
  if (lse) {
    device::RunningSum<W> running;
    for (int64_t i = threadIdx.x; i < batch.classes; i += 4 * 32) {
      W values[4];
#pragma unroll
      for (int k = 0; k < 4; ++k)
        values[k] = i + k * 32 < batch.classes ? widen(from[i + k * 32]) : W(-INFINITY);
      running.add(values);
    }
    const W top = device::warp_reduce(running.top, device::Max{});
    const W sum = device::warp_reduce(running.sum_under(top), device::Sum{});
    log_sum = device::RunningSum<W>{top, sum}.log();
    if (threadIdx.x == 0) lse[row] = log_sum;
  }
  const int64_t t = row / batch.size;
  const int64_t b = row % batch.size;
  if (!batch.fits(b) || t >= batch.inputs_of(b)) return;
  W* to = emissions + row * (batch.labels + 1);
  for (int u = threadIdx.x; u <= batch.labels_of(b); u += 32) {
    const int64_t k = u == 0 ? batch.blank : batch.class_of(b, 2 * u - 1);
    const bool known = u == 0 || batch.is_label(k);
    to[u] = known ? widen(from[k]) - log_sum : W(NAN);
  }
}

/// Sums over paths of one utterance, onward by one block and back by another. A thread has K
/// states, a block apart; two rows of states lie in shared memory in turn. Each thread copies its
/// own probabilities to a ring there `depth` frames before they are needed. An utterance whose
/// lengths or labels do not fit has a total of zero, so that its gradient is zero.
template <class W, int K, int depth>
__global__ void __launch_bounds__(CtcPlan::most_threads)
    lattice_kernel(const W* emissions, Batch batch, Tables<W> tables, W* losses,
                   bool zero_infinity) {
  using S = Scaled<W>;
  extern __shared__ __align__(16) unsigned char memory[];
  const int64_t b = blockIdx.x;
  const bool onward = blockIdx.y == 0;
  bool known = batch.fits(b);
  const int own_labels = known ? batch.labels_of(b) : 0;
  for (int u = threadIdx.x; u < own_labels; u += blockDim.x)
    known = known && batch.is_label(batch.class_of(b, 2 * u + 1));
  const bool fits = __syncthreads_and(known) != 0;
  const int frames = fits ? batch.inputs_of(b) : 0;
  const int states = fits ? 2 * batch.labels_of(b) + 1 : 1;
  const int64_t stride = 2 * batch.labels + 1;
  S* rows = reinterpret_cast<S*>(memory);             // [2][most states]
  W* ring = reinterpret_cast<W*>(rows + 2 * stride);  // [depth][K][threads]
  bool skips[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int s = static_cast<int>(threadIdx.x + k * blockDim.x);
    const int from = onward ? s : s + 2;  // skips is of the state that is skipped to
    skips[k] = from < states && batch.skips(b, from);
  }
  const auto place = [&](int step, int k) {
    return ring + (static_cast<unsigned>(step) % depth * K + k) * blockDim.x + threadIdx.x;
  };
  const auto fetch = [&](int step) {
    const int64_t t = onward ? step : frames - 1 - step;
    const W* from = emissions + (t * batch.size + b) * (batch.labels + 1);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int s = static_cast<int>(threadIdx.x + k * blockDim.x);
      const bool wanted = step < frames && s < states;
      const int u = s % 2 == 0 ? 0 : s / 2 + 1;
      device::copy_async<sizeof(W)>(place(step, k), wanted ? from + u : emissions, wanted);
    }
    device::commit_copies();
  };
  for (int step = 0; step < depth; ++step) fetch(step);
  for (int step = 0; step < frames; ++step) {
    const S* before = rows + ((step + 1) % 2) * stride;
    S* now = rows + (step % 2) * stride;
    const int64_t cell = batch.cell(b, onward ? step : frames - 1 - step);
    device::wait_copies<depth - 1>();
    S probability[K];
#pragma unroll
    for (int k = 0; k < K; ++k) probability[k] = scaled_exp(*place(step, k));
    fetch(step + depth);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int s = static_cast<int>(threadIdx.x + k * blockDim.x);
      if (s >= states) continue;
      const int at = onward ? s : states - 1 - s;  // distance from where paths begin
      S sum = step == 0 && at < 2 ? S::one() : S::zero();
      if (step > 0) {
        sum = before[s];
        if (at > 0) sum = sum + before[onward ? s - 1 : s + 1];
        if (skips[k]) sum = sum + before[onward ? s - 2 : s + 2];
      }
      const S through = normalized(sum * probability[k]);
      now[s] = through;
      (onward ? tables.alpha : tables.beta)[cell + s] = onward ? through : sum;
    }
    __syncthreads();
  }
  device::wait_copies<0>();
  if (!onward || threadIdx.x > 0) return;
  S total = frames == 0 && states == 1 ? S::one() : S::zero();
  if (frames > 0) {
    const S* last = rows + ((frames - 1) % 2) * stride;
    total = states > 1 ? last[states - 1] + last[states - 2] : last[0];
  }
  tables.totals[b] = fits ? total : S::zero();
  const bool zero = total.value == W(0) && zero_infinity;
  losses[b] = !fits ? W(NAN) : zero ? W(0) : static_cast<W>(-scaled_log(total));
}

/// The reduction of losses in double and in a fixed order.
template <class W>
__global__ void reduce_kernel(const W* losses, Batch batch, bool mean, W* loss) {
  double sum = 0;
  for (int64_t b = threadIdx.x; b < batch.size; b += blockDim.x)
    sum += static_cast<double>(losses[b]) / (mean ? max(batch.labels_of(b), 1) : 1);
  sum = device::block_reduce(sum, device::Sum{}, 0.0);
  if (threadIdx.x == 0) *loss = static_cast<W>(mean ? sum / static_cast<double>(batch.size) : sum);
}

/// For each label of an utterance the next one that equals it, or -1; `later` of those that are not
/// the first of their kind. Utterances are the blocks.
__global__ void link_kernel(Batch batch, int* next, bool* later) {
  const int64_t b = blockIdx.x;
  const int labels = batch.fits(b) ? batch.labels_of(b) : 0;
  for (int u = threadIdx.x; u < labels; u += blockDim.x) {
    const int64_t label = batch.class_of(b, 2 * u + 1);
    const auto same = [&](int v) { return batch.class_of(b, 2 * v + 1) == label; };
    int after = u + 1;
    while (after < labels && !same(after)) ++after;
    int before = u - 1;
    while (before >= 0 && !same(before)) --before;
    next[b * batch.labels + u] = after < labels ? after : -1;
    later[b * batch.labels + u] = before >= 0;
  }
}

/// The gradient of one row by one block: first what every class gets, then what the blank and the
/// labels do, each written by the thread of its first state.
template <class T>
__global__ void __launch_bounds__(gradient_threads)
    gradient_kernel(const T* x, const wide<T>* lse, Batch batch, Tables<wide<T>> tables,
                    const int* next, const bool* later, const wide<T>* dloss, bool mean,
                    int64_t dloss_step, T* dx) {
  using W = wide<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  W* shares = reinterpret_cast<W*>(memory);  // of each label
  const int64_t row = blockIdx.x;
  const int64_t t = row / batch.size;
  const int64_t b = row % batch.size;
  T* to = dx + row * batch.classes;
  const Scaled<W> total = tables.totals[b];
  if (t >= batch.inputs_of(b) || total.value == W(0)) {
    for (int64_t k = threadIdx.x; k < batch.classes; k += blockDim.x) to[k] = T{};
    return;
  }
  W scale = dloss[b * dloss_step];
  const int labels = batch.labels_of(b);
  if (mean) scale /= static_cast<W>(batch.size * max(labels, 1));
  const W log_sum = lse ? lse[row] : W(0);
  const auto probability = [&](int64_t k) {
    if (!lse) return W(0);
    return device::exp2_of((widen(x[row * batch.classes + k]) - log_sum) *
                           device::RunningSum<W>::log2_e);
  };
  for (int64_t k = threadIdx.x; k < batch.classes; k += blockDim.x)
    to[k] = narrow<T>(scale * probability(k));
  const int64_t cell = batch.cell(b, t);
  W blank = 0;
  for (int s = threadIdx.x; s < 2 * labels + 1; s += blockDim.x) {
    const W share = scaled_ratio(tables.alpha[cell + s], tables.beta[cell + s], total);
    if (s % 2 == 0) {
      blank += share;
    } else {
      shares[s / 2] = share;
    }
  }
  blank = device::block_reduce(blank, device::Sum{}, W(0));  // orders the writes above, too
  __syncthreads();
  if (threadIdx.x == 0) to[batch.blank] = narrow<T>(scale * (probability(batch.blank) - blank));
  for (int u = threadIdx.x; u < labels; u += blockDim.x) {
    const int64_t label = batch.class_of(b, 2 * u + 1);
    if (!batch.is_label(label)) continue;
    const int64_t here = b * batch.labels;
    if (later[here + u]) continue;
    W sum = 0;
    for (int v = u; v >= 0; v = next[here + v]) sum += shares[v];
    to[label] = narrow<T>(scale * (probability(label) - sum));
  }
}

/// Calls f<states of a thread, frames ahead>() as the plan says.
template <class W, class F>
void visit_plan(const CtcPlan& plan, F&& f) {
  constexpr int word = sizeof(W), most = CtcPlan::most_each;
  if (plan.each == 1) return f.template operator()<1, CtcPlan::far_ahead(1, word)>();
  if (plan.ahead == 1) return f.template operator()<most, 1>();
  f.template operator()<most, CtcPlan::far_ahead(most, word)>();
}

int64_t shared_memory(Device device) { return device_properties(device).shared_memory_optin; }

}  // namespace

int64_t most_labels(Device device, DType dtype) {
  return ctc_most_labels(dtype == f64 ? 8 : 4, shared_memory(device));
}

void ctc_loss(const Tensor& x, const Tensor& input_lengths, const Tensor& target_lengths,
              const CtcLossResult& result, const Tensor& losses, const CtcLossOptions& options,
              Stream stream) {
  const char* op = "ctc_loss";
  const Batch batch = batch_of(x, input_lengths, target_lengths, result, options);
  const int64_t rows = batch.frames * batch.size;
  const int64_t states = 2 * batch.labels + 1;
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    W* lse = maybe<W>(result.lse);
    const Tensor emissions =
        Tensor::empty({std::max<int64_t>(rows, 1), batch.labels + 1}, dtype_of<W>, x.device());
    if (rows > 0)
      emission_kernel<<<grid_of(op, ceil_div(rows, 8)), dim3(32, 8), 0, native(stream)>>>(
          pointer<T>(x), batch, lse, pointer<W>(emissions));
    BS_CUDA_CHECK_LAUNCH(op);
    const CtcPlan plan = ctc_plan(states, sizeof(W), shared_memory(x.device()));
    visit_plan<W>(plan, [&]<int K, int depth>() {
      if (batch.size == 0) return;
      const auto bytes = static_cast<size_t>(plan.shared_bytes(states, sizeof(W)));
      const auto kernel = lattice_kernel<W, K, depth>;
      BS_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)));
      kernel<<<dim3(static_cast<unsigned>(batch.size), 2), plan.threads, bytes, native(stream)>>>(
          pointer<W>(emissions), batch, tables_of<W>(result), pointer<W>(losses),
          options.zero_infinity);
    });
    BS_CUDA_CHECK_LAUNCH(op);
    if (options.reduction != Reduction::none)
      reduce_kernel<<<1, 256, 0, native(stream)>>>(
          pointer<W>(losses), batch, options.reduction == Reduction::mean, pointer<W>(result.loss));
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

void ctc_loss_backward(const Tensor& x, const Tensor& input_lengths, const Tensor& target_lengths,
                       const CtcLossResult& result, const Tensor& dloss, const Tensor& dx,
                       const CtcLossOptions& options, Stream stream) {
  const char* op = "ctc_loss_backward";
  const Batch batch = batch_of(x, input_lengths, target_lengths, result, options);
  visit_floating(op, x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const int64_t labels = std::max<int64_t>(1, batch.labels);
    const Tensor next = Tensor::empty({batch.size, labels}, i32, x.device());
    const Tensor later = Tensor::empty({batch.size, labels}, boolean, x.device());
    link_kernel<<<static_cast<unsigned>(batch.size), link_threads, 0, native(stream)>>>(
        batch, next.data<int>(), later.data<bool>());
    BS_CUDA_CHECK_LAUNCH(op);
    const size_t bytes = static_cast<size_t>(labels) * sizeof(W);
    gradient_kernel<<<grid_of(op, batch.frames * batch.size), gradient_threads, bytes,
                      native(stream)>>>(
        pointer<T>(x), maybe<W>(result.lse), batch, tables_of<W>(result), next.data<int>(),
        later.data<bool>(), pointer<W>(dloss), options.reduction == Reduction::mean,
        options.reduction == Reduction::none ? 1 : 0, pointer<T>(dx));
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
