#include <bs/kernels/cpu/log_sum_exp.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/targets.h>
#include <bs/kernels/soft_cross_entropy.h>

#include <algorithm>

namespace bs::cpu {

namespace {

/// Calls f(Type<T>, Type<V>) with the types of logits and weights.
template <class F>
void visit(const char* op, const Tensor& logits, const Tensor& weights, F f) {
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T> type) {
    if (weights.dtype() == logits.dtype()) return f(type, type);
    f(type, Type<Wide<T>>{});
  });
}

}  // namespace

void soft_cross_entropy(const Tensor& logits, const Tensor& weights, const Tensor& loss, Stream) {
  const int64_t n = logits.size(-1);
  visit("soft_cross_entropy", logits, weights, [&]<class T, class V>(Type<T>, Type<V>) {
    using W = Wide<T>;
    const T* const logit = logits.data<T>();
    const V* const weight = weights.data<V>();
    W* const out = loss.data<W>();
    parallel_for(loss.numel(), elementwise_grain / n, [=](int64_t begin, int64_t end) {
      RowBuffer<T> x_row(n);
      RowBuffer<V> w_row(n);
      for (int64_t row = begin; row < end; ++row) {
        const W* const x = x_row.read(logit + row * n, n);
        const W* const w = w_row.read(weight + row * n, n);
        // Distances from the largest are exact where large logits are close to each other.
        const ExponentialSum<W> of = exponential_sum(x, n);
        const W log = math::log(of.sum);
        out[row] = sum_of<W>(
            n, [=](int64_t i) { return w[i] == 0 ? W{0} : w[i] * ((of.top - x[i]) + log); });
      }
    });
  });
}

void soft_cross_entropy_backward(const Tensor& logits, const Tensor& weights, const Tensor& dloss,
                                 const Tensor& dlogits, Stream) {
  const int64_t n = logits.size(-1);
  visit("soft_cross_entropy_backward", logits, weights, [&]<class T, class V>(Type<T>, Type<V>) {
    using W = Wide<T>;
    const T* const logit = logits.data<T>();
    const V* const weight = weights.data<V>();
    const W* const slope = dloss.data<W>();
    T* const to = dlogits.data<T>();
    parallel_for(dloss.numel(), elementwise_grain / n, [=](int64_t begin, int64_t end) {
      RowBuffer<T> x_row(n), dx_row(n);
      RowBuffer<V> w_row(n);
      for (int64_t row = begin; row < end; ++row) {
        const W* const x = x_row.read(logit + row * n, n);
        const W* const w = w_row.read(weight + row * n, n);
        W* const dx = dx_row.target(to + row * n);
        const ExponentialSum<W> of = exponential_sum(x, n);
        const W top = of.top, d = slope[row];
        const W share = sum_of<W>(n, [=](int64_t i) { return w[i]; }) / of.sum;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) dx[i] = d * (math::exp(x[i] - top) * share - w[i]);
        dx_row.write(to + row * n, n);
      }
    });
  });
}

void target_weights(const Tensor& targets, int64_t ignored, const Operand& rows,
                    const Operand& shares, const Tensor& weights, Stream) {
  const int64_t n = weights.size(-1);
  const std::vector<int64_t> numbers = read_targets(targets, n, ignored);
  const int64_t* const target = numbers.data();
  visit_floating("target_weights", weights.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* const hard = rows.tensor.defined() ? rows.tensor.data<T>() : nullptr;
    const T* const share = shares.tensor.defined() ? shares.tensor.data<T>() : nullptr;
    const T one_hard = convert<T>(rows.number.to<W>());
    const T one_share = convert<T>(shares.number.to<W>());
    T* const to = weights.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / n);
    parallel_for(targets.numel(), grain, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* const out = to + row * n;
        const bool counts = target[row] >= 0;
        if (counts && share != nullptr) {
          std::copy_n(share, n, out);
        } else {
          std::fill_n(out, n, counts ? one_share : T{});
        }
        if (!counts) continue;
        T& hit = out[target[row]];
        hit = convert<T>(convert<W>(hit) + convert<W>(hard != nullptr ? hard[row] : one_hard));
      }
    });
  });
}

}  // namespace bs::cpu
