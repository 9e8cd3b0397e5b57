#include <bs/kernels/cpu/log_sum_exp.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/transducer_utterances.h>
#include <bs/kernels/scaled.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace bs::cpu {

namespace {

std::vector<int64_t> read_labels(const char* op, const TransducerSizes& s, const Tensor& targets,
                                 const std::vector<Utterance>& utterances) {
  std::vector<int64_t> labels = read_integers(op, targets);
  for (const Utterance& one : utterances)
    for (int64_t u = 0; u < one.labels; ++u) {
      const int64_t label = labels[static_cast<size_t>(one.number * s.labels + u)];
      BS_CHECK(label >= 0 && label < s.classes, "{}: targets[{}, {}] is {}, outside of [0, {})", op,
               one.number, u, label, s.classes);
    }
  return labels;
}

/// What the transitions out of (t, u) weigh beside the probabilities of classes.
struct Rules {
  const TransducerLossOptions& options;
  const int64_t* labels;  ///< of the utterance
  int64_t frames, count;

  bool is_last(int64_t u) const { return u == count; }
  bool is_star(int64_t u) const { return !is_last(u) && labels[u] == options.star; }
  bool follows_star(int64_t u) const { return u > 0 && labels[u - 1] == options.star; }
  /// Added to the logarithm of label u's probability.
  double penalty(int64_t t, int64_t u) const {
    const double early = static_cast<double>(frames - 1) / 2 - static_cast<double>(t);
    const bool ends = labels[u] == options.eos && labels[u] != options.star;
    return (options.delay_penalty + (ends ? options.eos_penalty : 0)) * early;
  }
};

Rules rules_of(const TransducerSizes& s, const Utterance& one, const std::vector<int64_t>& labels,
               const TransducerLossOptions& options) {
  return {options, labels.data() + one.number * s.labels, one.frames, one.labels};
}

/// Views of the four tables of a lattice.
template <class W>
struct Tables {
  Scaled<W>* blank;  ///< weight of the time step out of a cell
  Scaled<W>* label;  ///< weight of the label out of it, zero in the last column
  Scaled<W>* alpha;  ///< of all paths from the start to a cell
  Scaled<W>* beta;   ///< of all paths from a cell to the end

  explicit Tables(const Tensor& lattice)
      : blank(static_cast<Scaled<W>*>(lattice.data())),
        label(blank + lattice.size(1)),
        alpha(label + lattice.size(1)),
        beta(alpha + lattice.size(1)) {}
};

/// Calls body(utterance, t) for the frames of all utterances, padding included where there is any.
template <class Body>
void for_each_frame(const TransducerSizes& s, const std::vector<Utterance>& utterances,
                    Body&& body) {
  std::vector<std::pair<size_t, int64_t>> frames;
  for (size_t b = 0; b < utterances.size(); ++b)
    for (int64_t t = 0; t < (s.packed ? utterances[b].frames : s.frames); ++t)
      frames.emplace_back(b, t);
  const auto work = static_cast<double>(s.rows) * static_cast<double>(s.classes);
  parallel_each(static_cast<int64_t>(frames.size()), team_size(work, elementwise_grain),
                [&](int64_t i) {
                  const auto [b, t] = frames[static_cast<size_t>(i)];
                  body(utterances[b], t);
                });
}

template <class W>
void forward_sums(const Tables<W>& tables, const Utterance& one) {
  for (int64_t t = 0; t < one.frames; ++t)
    for (int64_t u = 0; u <= one.labels; ++u) {
      const int64_t c = one.cell_of(t, u);
      const int64_t above = c - one.columns();
      Scaled<W> sum = t + u == 0 ? Scaled<W>::one() : Scaled<W>::zero();
      if (t > 0) sum = sum + tables.alpha[above] * tables.blank[above];
      if (u > 0) sum = sum + tables.alpha[c - 1] * tables.label[c - 1];
      tables.alpha[c] = sum;
    }
}

template <class W>
void backward_sums(const Tables<W>& tables, const Utterance& one) {
  for (int64_t t = one.frames - 1; t >= 0; --t)
    for (int64_t u = one.labels; u >= 0; --u) {
      const int64_t c = one.cell_of(t, u);
      Scaled<W> after = Scaled<W>::one();
      if (t + 1 < one.frames) {
        after = tables.beta[c + one.columns()];
      } else if (u < one.labels) {
        after = Scaled<W>::zero();
      }
      Scaled<W> sum = normalized(tables.blank[c] * after);
      if (u < one.labels) sum = sum + tables.label[c] * tables.beta[c + 1];
      tables.beta[c] = sum;
    }
}

/// The sum of the losses, or their mean; in double, so that the order matters less than the
/// rounding of the result.
template <class W>
void reduce(const W* losses, int64_t n, Reduction reduction, W* loss) {
  double sum = 0;
  for (int64_t b = 0; b < n; ++b) sum += static_cast<double>(losses[b]);
  *loss = static_cast<W>(reduction == Reduction::mean ? sum / static_cast<double>(n) : sum);
}

/// lse and the two transitions of each cell of one frame.
template <class T>
void read_frame(const T* logits, int64_t classes, const Utterance& one, int64_t t,
                const Rules& rules, const Tables<Wide<T>>& tables, Wide<T>* lse) {
  using W = Wide<T>;
  RowBuffer<T> buffer(classes);
  for (int64_t u = 0; u <= one.labels; ++u) {
    const int64_t row = one.row_of(t, u);
    const int64_t c = one.cell_of(t, u);
    const W* x = buffer.read(logits + row * classes, classes);
    lse[row] = log_sum_exp(x, classes);
    tables.blank[c] =
        scaled_exp(rules.follows_star(u) ? static_cast<W>(std::log(rules.options.star_penalty))
                                         : x[rules.options.blank] - lse[row]);
    tables.label[c] = Scaled<W>::zero();
    if (rules.is_last(u)) continue;
    const auto penalty = static_cast<W>(rules.penalty(t, u));
    tables.label[c] =
        scaled_exp(rules.is_star(u) ? penalty : x[rules.labels[u]] - lse[row] + penalty);
  }
}

/// The gradient of one row's loss by its logits x, whose softmax is exp(x - lse). `emit` and
/// `step` are what the logits of the label and of the blank weigh in it.
template <class W>
struct RowGradient {
  W lse, emit, step;
  int64_t label, blank;  ///< label -1: none
  W clamp, scale;

  void operator()(const W* x, W* dx, int64_t n) const {
    const W both = emit + step;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = both * math::exp(x[i] - lse);
    if (label >= 0) dx[label] -= emit;
    dx[blank] -= step;
    if (clamp > 0) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const W low = dx[i] < -clamp ? -clamp : dx[i];
        dx[i] = low > clamp ? clamp : low;
      }
    }
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] *= scale;
  }
};

/// Gradients of one frame, of which what lies past the lengths is zero.
template <class T>
void differentiate_frame(const T* logits, T* dlogits, int64_t classes, const Utterance& one,
                         int64_t t, const Rules& rules, const Tables<Wide<T>>& tables,
                         const Wide<T>* lse, Wide<T> scale) {
  using W = Wide<T>;
  RowBuffer<T> in(classes), out(classes);
  const int64_t within = t < one.frames ? one.columns() : 0;
  const Scaled<W> total = one.frames > 0 ? tables.beta[one.cell] : Scaled<W>::zero();
  for (int64_t u = 0; u < one.stride; ++u) {
    const int64_t row = one.row_of(t, u);
    T* to = dlogits + row * classes;
    RowGradient<W> gradient{};
    if (u < within) {
      const int64_t c = one.cell_of(t, u);
      const bool leaves = t + 1 < one.frames;
      const bool ends = !leaves && u == one.labels;
      if (!rules.is_last(u) && !rules.is_star(u))
        gradient.emit = static_cast<W>(1 + rules.options.fastemit_lambda) *
                        scaled_ratio(tables.alpha[c] * tables.label[c], tables.beta[c + 1], total);
      if (!rules.follows_star(u) && (leaves || ends))
        gradient.step =
            scaled_ratio(tables.alpha[c] * tables.blank[c],
                         leaves ? tables.beta[c + one.columns()] : Scaled<W>::one(), total);
    }
    if (gradient.emit == 0 && gradient.step == 0) {
      std::fill_n(to, classes, T{});
      continue;
    }
    gradient.lse = lse[row];
    gradient.label = rules.is_last(u) ? -1 : rules.labels[u];
    gradient.blank = rules.options.blank;
    gradient.clamp = static_cast<W>(rules.options.clamp);
    gradient.scale = scale;
    gradient(in.read(logits + row * classes, classes), out.target(to), classes);
    out.write(to, classes);
  }
}

/// The best path's frames of emission.
template <class W>
void align(const Tables<W>& tables, const Utterance& one, int64_t* frames) {
  std::vector<Scaled<W>> best(static_cast<size_t>(one.frames * one.columns()));
  const auto at = [&](int64_t t, int64_t u) -> Scaled<W>& {
    return best[static_cast<size_t>(t * one.columns() + u)];
  };
  const auto stepped = [&](int64_t t, int64_t u) {
    return t == 0 ? Scaled<W>::zero()
                  : normalized(at(t - 1, u) * tables.blank[one.cell_of(t - 1, u)]);
  };
  const auto emitted = [&](int64_t t, int64_t u) {
    return u == 0 ? Scaled<W>::zero()
                  : normalized(at(t, u - 1) * tables.label[one.cell_of(t, u - 1)]);
  };
  for (int64_t t = 0; t < one.frames; ++t)
    for (int64_t u = 0; u <= one.labels; ++u) {
      const Scaled<W> step = stepped(t, u);
      const Scaled<W> emit = emitted(t, u);
      at(t, u) = t + u == 0 ? Scaled<W>::one() : emit < step ? step : emit;
    }
  int64_t t = one.frames - 1;
  int64_t u = one.labels;
  const Scaled<W> end = at(t, u) * tables.blank[one.cell_of(t, u)];
  if (!(end.value > 0)) return;
  while (u > 0) {
    if (t > 0 && emitted(t, u) < stepped(t, u)) {
      --t;
    } else {
      frames[--u] = t;
    }
  }
}

}  // namespace

void transducer_loss(const Tensor& logits, const Tensor& targets, const Tensor& logit_lengths,
                     const Tensor& target_lengths, const TransducerLossResult& result,
                     const Tensor& losses, const TransducerLossOptions& options, Stream) {
  const char* op = "transducer_loss";
  const TransducerSizes s = transducer_sizes(op, logits, targets);
  locate(op, s, logit_lengths, target_lengths, result.utterances);
  const std::vector<Utterance> utterances = utterances_of(op, s, result.utterances);
  const std::vector<int64_t> labels = read_labels(op, s, targets, utterances);
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* from = logits.data<T>();
    const Tables<W> tables(result.lattice);
    W* lse = result.lse.data<W>();
    for_each_frame(s, utterances, [&](const Utterance& one, int64_t t) {
      if (t < one.frames)
        read_frame(from, s.classes, one, t, rules_of(s, one, labels, options), tables, lse);
    });
    W* out = losses.data<W>();
    const int team = team_size(static_cast<double>(s.rows), 1024);
    parallel_each(2 * s.batch, team, [&](int64_t i) {
      const Utterance& one = utterances[static_cast<size_t>(i / 2)];
      if (i % 2 == 0) return forward_sums(tables, one);
      backward_sums(tables, one);
      const Scaled<W> total = one.frames > 0 ? tables.beta[one.cell] : Scaled<W>::zero();
      out[i / 2] = static_cast<W>(-(1 + options.fastemit_lambda) * scaled_log(total));
    });
    if (options.reduction != Reduction::none)
      reduce(out, s.batch, options.reduction, result.loss.data<W>());
  });
}

void transducer_loss_backward(const Tensor& logits, const Tensor& targets,
                              const TransducerLossResult& result, const Tensor& dloss,
                              const Tensor& dlogits, const TransducerLossOptions& options, Stream) {
  const char* op = "transducer_loss_backward";
  const TransducerSizes s = transducer_sizes(op, logits, targets);
  const std::vector<Utterance> utterances = utterances_of(op, s, result.utterances);
  const std::vector<int64_t> labels = read_labels(op, s, targets, utterances);
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const Tables<W> tables(result.lattice);
    const W* gradient = dloss.data<W>();
    const W each = options.reduction == Reduction::mean ? W{1} / static_cast<W>(s.batch) : W{1};
    const int64_t step = options.reduction == Reduction::none ? 1 : 0;
    for_each_frame(s, utterances, [&](const Utterance& one, int64_t t) {
      differentiate_frame(logits.data<T>(), dlogits.data<T>(), s.classes, one, t,
                          rules_of(s, one, labels, options), tables, result.lse.data<W>(),
                          gradient[one.number * step] * each);
    });
    T* const out = dlogits.data<T>();
    std::fill(out + end_of(s, utterances) * s.classes, out + dlogits.numel(), T{});
  });
}

void transducer_posterior(const TransducerSizes& s, const TransducerLossResult& result,
                          const Tensor& posterior, Stream) {
  constexpr const char* op = "transducer_posterior";
  visit_floating(op, posterior.dtype(), [&]<class W>(Type<W>) {
    if constexpr (std::is_same_v<W, Wide<W>>) {
      const Tables<W> tables(result.lattice);
      W* out = posterior.data<W>();
      for (const Utterance& one : utterances_of(op, s, result.utterances))
        for (int64_t t = 0; t < one.frames; ++t)
          for (int64_t u = 0; u <= one.labels; ++u) {
            const int64_t c = one.cell_of(t, u);
            out[one.row_of(t, u)] =
                scaled_ratio(tables.alpha[c], tables.beta[c], tables.beta[one.cell]);
          }
    }
  });
}

void transducer_alignment(const TransducerSizes& s, const TransducerLossResult& result,
                          const Tensor& frames, Stream) {
  constexpr const char* op = "transducer_alignment";
  visit_floating(op, result.lse.dtype(), [&]<class W>(Type<W>) {
    if constexpr (std::is_same_v<W, Wide<W>>) {
      const Tables<W> tables(result.lattice);
      const std::vector<Utterance> utterances = utterances_of(op, s, result.utterances);
      parallel_each(s.batch, team_size(static_cast<double>(s.rows), 1024), [&](int64_t b) {
        const Utterance& one = utterances[static_cast<size_t>(b)];
        if (one.frames > 0) align(tables, one, frames.data<int64_t>() + b * s.labels);
      });
    }
  });
}

}  // namespace bs::cpu
