#pragma once
/** @file The transducer loss once more, in double: sums over paths by plain recursion in logs. */
#include <bs/autograd/transducer_loss.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>

#include <cmath>
#include <limits>
#include <vector>

namespace bs::test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

inline double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == -infinity ? a : a + std::log1p(std::exp(b - a));
}

/** @brief Lengths and labels of a batch. */
struct TransducerBatch {
  int64_t max_frames, max_labels, classes;
  std::vector<int64_t> frames, labels;        ///< lengths
  std::vector<std::vector<int64_t>> targets;  ///< max_labels each; padding included

  int64_t size() const { return static_cast<int64_t>(frames.size()); }
  int64_t packed_rows() const {
    int64_t rows = 0;
    for (size_t b = 0; b < frames.size(); ++b) rows += frames[b] * (labels[b] + 1);
    return rows;
  }
  Shape dense_shape() const { return {size(), max_frames, max_labels + 1, classes}; }
  Shape packed_shape() const { return {packed_rows(), classes}; }

  Tensor integers(const std::vector<int64_t>& values, DType dtype, Device device) const {
    Reference r({static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) r[i] = static_cast<double>(values[i]);
    return r.tensor(dtype, device);
  }
  Tensor frames_tensor(DType dtype, Device device) const { return integers(frames, dtype, device); }
  Tensor labels_tensor(DType dtype, Device device) const { return integers(labels, dtype, device); }
  Tensor targets_tensor(DType dtype, Device device) const {
    std::vector<int64_t> all;
    for (const auto& one : targets) all.insert(all.end(), one.begin(), one.end());
    return integers(all, dtype, device).view({size(), max_labels});
  }
};

/** @brief A batch of the lengths given with labels that repeat and avoid class 0. */
inline TransducerBatch transducer_batch(int64_t classes, const std::vector<int64_t>& frames,
                                        const std::vector<int64_t>& labels, int64_t padding = 0) {
  TransducerBatch batch{padding, padding, classes, frames, labels, {}};
  for (int64_t t : frames) batch.max_frames = std::max(batch.max_frames, t + padding);
  for (int64_t u : labels) batch.max_labels = std::max(batch.max_labels, u + padding);
  for (size_t b = 0; b < frames.size(); ++b) {
    batch.targets.emplace_back();
    for (int64_t u = 0; u < batch.max_labels; ++u)
      batch.targets[b].push_back(1 + (static_cast<int64_t>(b) + u * u / 2) % (classes - 1));
  }
  return batch;
}

/** @brief Logarithms of the weights of the transitions of one utterance. */
struct TransducerWeights {
  int64_t frames, labels;
  std::vector<double> blank, label;  ///< [frames, labels + 1]

  size_t at(int64_t t, int64_t u) const { return static_cast<size_t>(t * (labels + 1) + u); }
  /** @brief Of all paths from (t, u) to the end, by recursion: only for small sizes. */
  double paths(int64_t t, int64_t u) const {
    if (t == frames) return u == labels ? 0 : -infinity;
    const double on = blank[at(t, u)] + paths(t + 1, u);
    return u == labels ? on : log_add(on, label[at(t, u)] + paths(t, u + 1));
  }
  /** @brief The same by rows, for any size. */
  double total() const {
    const double never = -infinity;
    std::vector<double> beta(static_cast<size_t>(labels + 2), never);
    for (int64_t t = frames - 1; t >= 0; --t)
      for (int64_t u = labels; u >= 0; --u) {
        const auto i = static_cast<size_t>(u);
        const double next = t + 1 == frames ? (u == labels ? 0 : never) : beta[i];
        beta[i] = blank[at(t, u)] + next;
        if (u < labels) beta[i] = log_add(beta[i], label[at(t, u)] + beta[i + 1]);
      }
    return beta[0];
  }
};

/** @brief Weights of utterance b, whose row (t, u) of logits begins at x[row(t, u) * classes]. */
template <class Row>
TransducerWeights weights_of(const TransducerBatch& batch, size_t b, const Reference& x, Row row,
                             const TransducerLossOptions& o) {
  TransducerWeights w{batch.frames[b], batch.labels[b], {}, {}};
  const auto classes = static_cast<size_t>(batch.classes);
  const int64_t blank = o.blank < 0 ? o.blank + batch.classes : o.blank;
  for (int64_t t = 0; t < w.frames; ++t)
    for (int64_t u = 0; u <= w.labels; ++u) {
      const size_t at = static_cast<size_t>(row(t, u)) * classes;
      double lse = -infinity;
      for (size_t k = 0; k < classes; ++k) lse = log_add(lse, x[at + k]);
      const auto target = [&](int64_t i) { return batch.targets[b][static_cast<size_t>(i)]; };
      const bool after_star = u > 0 && target(u - 1) == o.star;
      w.blank.push_back(after_star ? std::log(o.star_penalty)
                                   : x[at + static_cast<size_t>(blank)] - lse);
      w.label.push_back(0);
      if (u == w.labels) continue;
      const double early = static_cast<double>(w.frames - 1) / 2 - static_cast<double>(t);
      double& label = w.label.back();
      label = o.delay_penalty * early;
      if (target(u) == o.star) continue;
      label += x[at + static_cast<size_t>(target(u))] - lse;
      if (target(u) == o.eos) label += o.eos_penalty * early;
    }
  return w;
}

/** @brief Losses of all utterances of dense or packed logits, then their reduction. */
inline Reference transducer_losses(const TransducerBatch& batch, const Reference& x,
                                   const TransducerLossOptions& o) {
  Reference losses({batch.size()});
  int64_t begin = 0;
  for (size_t b = 0; b < batch.frames.size(); ++b) {
    const bool packed = x.shape.rank() == 2;
    const int64_t columns = packed ? batch.labels[b] + 1 : batch.max_labels + 1;
    const auto row = [=](int64_t t, int64_t u) { return begin + t * columns + u; };
    losses[b] = -(1 + o.fastemit_lambda) * weights_of(batch, b, x, row, o).total();
    begin += columns * (packed ? batch.frames[b] : batch.max_frames);
  }
  if (o.reduction == Reduction::none) return losses;
  Reference loss;
  for (double one : losses.values) loss[0] += one;
  if (o.reduction == Reduction::mean) loss[0] /= static_cast<double>(batch.size());
  return loss;
}

/** @brief The loss on the device under test. */
inline Variable loss_of(const Variable& logits, const TransducerBatch& batch,
                        const TransducerLossOptions& options = {}, DType index = i64) {
  return transducer_loss(logits, batch.targets_tensor(index, test_device()),
                         batch.frames_tensor(index, test_device()),
                         batch.labels_tensor(index, test_device()), options);
}

inline TransducerLossResult result_of(const Reference& x, const TransducerBatch& batch,
                                      const TransducerLossOptions& options, DType dtype = f64) {
  return transducer_loss(x.tensor(dtype, test_device()), batch.targets_tensor(i64, test_device()),
                         batch.frames_tensor(i64, test_device()),
                         batch.labels_tensor(i64, test_device()), options);
}

/** @brief The gradient of the sum of losses with a weight of `upstream`. */
inline Reference gradient_of(const Reference& x, const TransducerBatch& batch,
                             TransducerLossOptions options, double upstream = 1,
                             DType dtype = f64) {
  options.reduction = Reduction::sum;
  const Variable logits(x.tensor(dtype, test_device()), true);
  const Variable loss = loss_of(logits, batch, options);
  loss.backward(full({}, upstream, loss.dtype(), test_device()));
  return Reference::of(logits.grad());
}

}  // namespace bs::test
