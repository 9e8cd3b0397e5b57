#include <bs/kernels/cpu/log_sum_exp.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/transducer_utterances.h>
#include <bs/kernels/ctc_loss.h>
#include <bs/kernels/scaled.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace bs::cpu {

namespace {

/// Sizes, lengths and labels of a batch, checked.
struct Batch {
  int64_t frames, size, classes, labels;
  int64_t blank;
  std::vector<int64_t> input_lengths, target_lengths, targets;

  Batch(const Tensor& x, const Tensor& inputs, const Tensor& outputs, const Tensor& given,
        const CtcLossOptions& options)
      : frames(x.size(0)),
        size(x.size(1)),
        classes(x.size(2)),
        labels(given.size(1)),
        blank(options.blank),
        input_lengths(read_integers("ctc_loss", inputs)),
        target_lengths(read_integers("ctc_loss", outputs)),
        targets(read_integers("ctc_loss", given)) {
    for (int64_t b = 0; b < size; ++b) {
      BS_CHECK(inputs_of(b) >= 0 && inputs_of(b) <= frames,
               "ctc_loss: input_lengths[{}] is {}, outside of [0, {}]", b, inputs_of(b), frames);
      BS_CHECK(labels_of(b) >= 0 && labels_of(b) <= labels,
               "ctc_loss: target_lengths[{}] is {}, outside of [0, {}]", b, labels_of(b), labels);
      for (int64_t u = 0; u < labels_of(b); ++u) {
        const int64_t label = label_of(b, u);
        BS_CHECK(label >= 0 && label < classes && label != blank,
                 "ctc_loss: target {} of utterance {} is {}, outside of [0, {}) or the blank", u, b,
                 label, classes);
      }
    }
  }
  int64_t inputs_of(int64_t b) const { return input_lengths[static_cast<size_t>(b)]; }
  int64_t labels_of(int64_t b) const { return target_lengths[static_cast<size_t>(b)]; }
  int64_t label_of(int64_t b, int64_t u) const {
    return targets[static_cast<size_t>(b * labels + u)];
  }
  /// States of an utterance: a blank, then label and blank in turn.
  int64_t states_of(int64_t b) const { return 2 * labels_of(b) + 1; }
  int64_t class_of(int64_t b, int64_t s) const { return s % 2 == 0 ? blank : label_of(b, s / 2); }
  /// Whether a path may go from state s - 2 to s.
  bool skips(int64_t b, int64_t s) const {
    return s % 2 == 1 && s >= 3 && class_of(b, s) != class_of(b, s - 2);
  }
  int64_t cell(int64_t b, int64_t t) const { return (b * frames + t) * (2 * labels + 1); }
};

/// alpha: of all paths up to a state, its own probability included; beta: of all after it.
template <class W>
struct Tables {
  Scaled<W>* alpha;
  Scaled<W>* beta;
  Scaled<W>* totals;

  explicit Tables(const CtcLossResult& result)
      : alpha(static_cast<Scaled<W>*>(result.lattice.data())),
        beta(static_cast<Scaled<W>*>(result.lattice.select(0, 1).data())),
        totals(static_cast<Scaled<W>*>(result.totals.data())) {}
};

template <class T>
struct Input {
  using W = Wide<T>;
  const T* x;
  const W* lse;  ///< null for log-probabilities

  Scaled<W> probability(const Batch& batch, int64_t t, int64_t b, int64_t k) const {
    const int64_t row = t * batch.size + b;
    return scaled_exp(convert<W>(x[row * batch.classes + k]) - (lse ? lse[row] : W{0}));
  }
};

template <class T>
void forward_sums(const Batch& batch, const Input<T>& input, const Tables<Wide<T>>& tables,
                  int64_t b) {
  using S = Scaled<Wide<T>>;
  const int64_t frames = batch.inputs_of(b);
  const int64_t states = batch.states_of(b);
  for (int64_t t = 0; t < frames; ++t) {
    S* now = tables.alpha + batch.cell(b, t);
    const S* before = t > 0 ? tables.alpha + batch.cell(b, t - 1) : nullptr;
    for (int64_t s = 0; s < states; ++s) {
      S sum = t == 0 && s < 2 ? S::one() : S::zero();
      if (t > 0) {
        sum = before[s];
        if (s > 0) sum = sum + before[s - 1];
        if (batch.skips(b, s)) sum = sum + before[s - 2];
      }
      now[s] = normalized(sum * input.probability(batch, t, b, batch.class_of(b, s)));
    }
  }
  S total = frames == 0 && states == 1 ? S::one() : S::zero();
  if (frames > 0) {
    const S* last = tables.alpha + batch.cell(b, frames - 1);
    total = states > 1 ? last[states - 1] + last[states - 2] : last[0];
  }
  tables.totals[b] = total;
}

template <class T>
void backward_sums(const Batch& batch, const Input<T>& input, const Tables<Wide<T>>& tables,
                   int64_t b) {
  using S = Scaled<Wide<T>>;
  const int64_t frames = batch.inputs_of(b);
  const int64_t states = batch.states_of(b);
  std::vector<S> next(static_cast<size_t>(states));  // a state's probability and all after it
  for (int64_t t = frames - 1; t >= 0; --t) {
    S* now = tables.beta + batch.cell(b, t);
    for (int64_t s = 0; s < states; ++s) {
      S sum = s + 2 >= states ? S::one() : S::zero();
      if (t + 1 < frames) {
        const auto i = static_cast<size_t>(s);
        sum = next[i];
        if (s + 1 < states) sum = sum + next[i + 1];
        if (s + 2 < states && batch.skips(b, s + 2)) sum = sum + next[i + 2];
      }
      now[s] = sum;
    }
    for (int64_t s = 0; s < states; ++s)
      next[static_cast<size_t>(s)] =
          normalized(now[s] * input.probability(batch, t, b, batch.class_of(b, s)));
  }
}

template <class W>
void reduce(const W* losses, const Batch& batch, Reduction reduction, W* loss) {
  double sum = 0;
  for (int64_t b = 0; b < batch.size; ++b) {
    const auto labels = static_cast<double>(std::max<int64_t>(batch.labels_of(b), 1));
    sum += static_cast<double>(losses[b]) / (reduction == Reduction::mean ? labels : 1);
  }
  const auto n = static_cast<double>(batch.size);
  *loss = static_cast<W>(reduction == Reduction::mean ? sum / n : sum);
}

/// The gradient of one row: `scale` times p (of logits) less the shares of its states.
template <class W>
void differentiate_row(const Batch& batch, const Tables<W>& tables, const W* x, const W* lse,
                       int64_t t, int64_t b, W scale, W* dx) {
  const int64_t n = batch.classes;
  const Scaled<W> total = tables.totals[b];
  if (lse != nullptr) {
    const W log_sum = lse[t * batch.size + b];
#pragma omp simd
    for (int64_t k = 0; k < n; ++k) dx[k] = math::exp(x[k] - log_sum);
  } else {
    std::fill_n(dx, n, W{0});
  }
  const int64_t cell = batch.cell(b, t);
  for (int64_t s = 0; s < batch.states_of(b); ++s)
    dx[batch.class_of(b, s)] -= scaled_ratio(tables.alpha[cell + s], tables.beta[cell + s], total);
#pragma omp simd
  for (int64_t k = 0; k < n; ++k) dx[k] *= scale;
}

}  // namespace

int64_t most_labels(Device /*device*/, DType /*dtype*/) {
  return std::numeric_limits<int64_t>::max();
}

void ctc_loss(const Tensor& x, const Tensor& input_lengths, const Tensor& target_lengths,
              const CtcLossResult& result, const Tensor& losses, const CtcLossOptions& options,
              Stream) {
  const Batch batch(x, input_lengths, target_lengths, result.targets, options);
  visit_floating("ctc_loss", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* from = x.data<T>();
    W* lse = options.logits ? result.lse.data<W>() : nullptr;
    const int64_t n = batch.classes;
    if (options.logits)
      parallel_for(batch.frames * batch.size, elementwise_grain / n,
                   [&](int64_t begin, int64_t end) {
                     RowBuffer<T> buffer(n);
                     for (int64_t row = begin; row < end; ++row)
                       lse[row] = log_sum_exp(buffer.read(from + row * n, n), n);
                   });
    const Input<T> input{from, lse};
    const Tables<W> tables(result);
    W* out = losses.data<W>();
    const auto cells = static_cast<double>(result.lattice.numel());
    parallel_each(2 * batch.size, team_size(cells, 4096), [&](int64_t i) {
      const int64_t b = i / 2;
      if (i % 2 == 1) return backward_sums(batch, input, tables, b);
      forward_sums(batch, input, tables, b);
      const bool impossible = tables.totals[b].value == 0;
      out[b] = impossible && options.zero_infinity ? W{0}
                                                   : static_cast<W>(-scaled_log(tables.totals[b]));
    });
    if (options.reduction != Reduction::none)
      reduce(out, batch, options.reduction, result.loss.data<W>());
  });
}

void ctc_loss_backward(const Tensor& x, const Tensor& input_lengths, const Tensor& target_lengths,
                       const CtcLossResult& result, const Tensor& dloss, const Tensor& dx,
                       const CtcLossOptions& options, Stream) {
  const Batch batch(x, input_lengths, target_lengths, result.targets, options);
  visit_floating("ctc_loss_backward", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const W* gradient = dloss.data<W>();
    const W* lse = options.logits ? result.lse.data<W>() : nullptr;
    const Tables<W> tables(result);
    const int64_t n = batch.classes;
    parallel_for(batch.frames * batch.size, elementwise_grain / (n + batch.labels),
                 [&](int64_t begin, int64_t end) {
                   RowBuffer<T> in(n), out(n);
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t t = row / batch.size;
                     const int64_t b = row % batch.size;
                     T* to = dx.data<T>() + row * n;
                     if (t >= batch.inputs_of(b) || tables.totals[b].value == 0) {
                       std::fill_n(to, n, T{});
                       continue;
                     }
                     W scale = gradient[options.reduction == Reduction::none ? b : 0];
                     if (options.reduction == Reduction::mean)
                       scale /=
                           static_cast<W>(batch.size * std::max<int64_t>(batch.labels_of(b), 1));
                     differentiate_row(batch, tables, in.read(x.data<T>() + row * n, n), lse, t, b,
                                       scale, out.target(to));
                     out.write(to, n);
                   }
                 });
  });
}

}  // namespace bs::cpu
