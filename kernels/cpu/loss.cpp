#include <bs/kernels/cpu/log_sum_exp.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/targets.h>
#include <bs/kernels/loss.h>

namespace bs::cpu {

namespace {

/// The largest x, the log of the sum of exponentials beside it, and how far below it the mean of x
/// is, where smoothing wants that. Distances are exact where large logits are close to each other.
template <class W>
struct RowSums {
  W top, log, below;

  RowSums(const W* x, W smoothing, int64_t n) {
    const ExponentialSum<W> of = exponential_sum(x, n);
    top = of.top;
    log = math::log(of.sum);
    const W distances =
        smoothing > 0 ? sum_of<W>(n, [=](int64_t i) { return of.top - x[i]; }) : W{0};
    below = distances / static_cast<W>(n);
  }
  W lse() const { return top + log; }
  /// What rounding takes from lse() (Knuth, 1969).
  W lse_rest() const {
    const W sum = lse(), of_log = sum - top;
    return (top - (sum - of_log)) + (log - of_log);
  }
};

/// `scale` times the gradient of one row's loss. `rest`: what exp(-lse) is to be multiplied by.
template <class W>
void backward_row(const W* x, W lse, W rest, int64_t target, W smoothing, W scale, W* dx,
                  int64_t n) {
  const W share = smoothing / static_cast<W>(n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = scale * (rest * math::exp(x[i] - lse) - share);
  dx[target] -= scale * (1 - smoothing);
}

/// The sum of the counted rows' losses, or their mean; in double, so that its order matters less
/// than the rounding of the result.
template <class W>
void reduce(const W* losses, const std::vector<int64_t>& targets, const Tensor& loss,
            const Tensor& weight) {
  double sum = 0;
  int64_t count = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    sum += static_cast<double>(losses[row]);
    ++count;
  }
  const double each = weight.defined() ? 1 / static_cast<double>(count) : 1;
  *loss.data<W>() = static_cast<W>(sum * each);
  if (weight.defined()) *weight.data<W>() = static_cast<W>(each);
}

}  // namespace

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& lse,
                   const Tensor& lse_rest, const Tensor& losses, const Tensor& loss,
                   const Tensor& weight, const CrossEntropyOptions& options, Stream) {
  const int64_t n = logits.size(-1);
  const std::vector<int64_t> wanted = read_targets(targets, n, options.ignore_index);
  visit_floating("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* from = logits.data<T>();
    W *lses = lse.data<W>(), *rests = lse_rest.data<W>();
    W* out = losses.data<W>();
    const auto smoothing = static_cast<W>(options.label_smoothing);
    parallel_for(targets.numel(), elementwise_grain / n, [&](int64_t begin, int64_t end) {
      RowBuffer<T> buffer(n);
      for (int64_t row = begin; row < end; ++row) {
        const W* x = buffer.read(from + row * n, n);
        const RowSums<W> sums(x, smoothing, n);
        lses[row] = sums.lse();
        rests[row] = sums.lse_rest();
        const int64_t target = wanted[static_cast<size_t>(row)];
        out[row] = 0;
        if (target >= 0) out[row] = (1 - smoothing) * ((sums.top - x[target]) + sums.log);
        if (target >= 0 && smoothing > 0) out[row] += smoothing * (sums.below + sums.log);
      }
    });
    if (loss.defined()) reduce<W>(out, wanted, loss, weight);
  });
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& lse,
                            const Tensor& lse_rest, const Tensor& weight, const Tensor& dloss,
                            const Tensor& dlogits, const CrossEntropyOptions& options, Stream) {
  const int64_t n = logits.size(-1);
  const std::vector<int64_t> wanted = read_targets(targets, n, options.ignore_index);
  visit_floating("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* from = logits.data<T>();
    const W* lses = lse.data<W>();
    const W* rests = lse_rest.defined() ? lse_rest.data<W>() : nullptr;
    const W* gradient = dloss.data<W>();
    const W each = weight.defined() ? *weight.data<W>() : W{1};
    const int64_t step = options.reduction == Reduction::none ? 1 : 0;
    T* to = dlogits.data<T>();
    parallel_for(targets.numel(), elementwise_grain / n, [&](int64_t begin, int64_t end) {
      RowBuffer<T> in(n), out(n);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t target = wanted[static_cast<size_t>(row)];
        if (target < 0) {
          std::fill_n(to + row * n, n, T{});
          continue;
        }
        const W rest = rests ? math::exp(-rests[row]) : W{1};
        backward_row<W>(in.read(from + row * n, n), lses[row], rest, target,
                        static_cast<W>(options.label_smoothing), gradient[row * step] * each,
                        out.target(to + row * n), n);
        out.write(to + row * n, n);
      }
    });
  });
}

}  // namespace bs::cpu
