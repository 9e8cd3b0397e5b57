#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/kernels/transducer_reference.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

const TransducerBatch some = transducer_batch(7, {4, 1, 6, 3}, {3, 2, 0, 5}, 1);

}  // namespace

TEST_CASE("FastEmit scales what flows through labels, and each label is emitted once") {
  const Reference x = random_reference(some.dense_shape(), 9, -2, 2);
  const Reference none = gradient_of(x, some, {});
  const Reference one = gradient_of(x, some, {.fastemit_lambda = 1});
  const Reference third = gradient_of(x, some, {.fastemit_lambda = 0.3});
  const Reference posterior = Reference::of(
      transducer_posterior(x.tensor(f64, test_device()), some.targets_tensor(i64, test_device()),
                           result_of(x, some, {})));
  for (size_t i = 0; i < x.values.size(); ++i)
    CHECK(third[i] == doctest::Approx(none[i] + 0.3 * (one[i] - none[i])).epsilon(1e-9));
  for (int64_t b = 0; b < some.size(); ++b)
    for (int64_t u = 0; u < some.labels[static_cast<size_t>(b)]; ++u) {
      double emitted = 0;
      for (int64_t t = 0; t < some.frames[static_cast<size_t>(b)]; ++t) {
        double sum = 0;
        for (int64_t k = 0; k < some.classes; ++k) sum += std::exp(x.at({b, t, u, k}));
        const double p = std::exp(x.at({b, t, u, 0})) / sum;  // class 0: no label, no blank
        emitted += (one.at({b, t, u, 0}) - none.at({b, t, u, 0})) / p;
        CHECK(none.at({b, t, u, 0}) / p == doctest::Approx(posterior.at({b, t, u})));
      }
      CHECK(emitted == doctest::Approx(1));
    }
  const double plain = result_of(x, some, {}).loss.item();
  CHECK(result_of(x, some, {.fastemit_lambda = 0.3}).loss.item() == doctest::Approx(1.3 * plain));
}

TEST_CASE("the posterior of a transducer's lattice adds up to one along each diagonal") {
  for (const TransducerBatch& batch :
       {some, transducer_batch(4, {9, 50}, {70, 40}), transducer_batch(3, {6}, {300})}) {
    const Reference x = random_reference(batch.dense_shape(), 13);
    const Reference p = Reference::of(transducer_posterior(x.tensor(f64, test_device()),
                                                           batch.targets_tensor(i64, test_device()),
                                                           result_of(x, batch, {})));
    for (int64_t b = 0; b < batch.size(); ++b) {
      const auto i = static_cast<size_t>(b);
      for (int64_t d = 0; d < batch.frames[i] + batch.labels[i]; ++d) {
        double sum = 0;
        for (int64_t u = 0; u <= std::min(d, batch.max_labels); ++u)
          if (d - u < batch.max_frames) sum += p.at({b, d - u, u});
        CHECK(sum == doctest::Approx(1));
      }
    }
  }
}

TEST_CASE("transducer_alignment finds the heaviest path") {
  for (const TransducerBatch& batch :
       {some, transducer_batch(5, {6, 4, 1}, {4, 6, 0}), transducer_batch(4, {0, 12}, {2, 40})}) {
    const Reference x = random_reference(batch.dense_shape(), 15, -4, 4);
    const Tensor targets = batch.targets_tensor(i64, test_device());
    const Tensor logits = x.tensor(f64, test_device());
    const Reference frames = Reference::of(
        transducer_alignment(logits, targets, result_of(x, batch, {.reduction = Reduction::none})));
    for (int64_t b = 0; b < batch.size(); ++b) {
      const auto i = static_cast<size_t>(b);
      const auto row = [&](int64_t t, int64_t u) {
        return (b * batch.max_frames + t) * (batch.max_labels + 1) + u;
      };
      const TransducerWeights w = weights_of(batch, i, x, row, {});
      for (int64_t u = 0; u < batch.max_labels; ++u)
        if (u >= w.labels || w.frames == 0) CHECK(frames.at({b, u}) == -1);
      if (w.frames == 0) continue;
      // The weight of the path found against the best of all, by dynamic programming.
      double found = 0;
      int64_t t = 0;
      for (int64_t u = 0; u <= w.labels; ++u) {
        const int64_t until = u < w.labels ? static_cast<int64_t>(frames.at({b, u})) : w.frames - 1;
        REQUIRE(until >= t);
        for (; t < until; ++t) found += w.blank[w.at(t, u)];
        found += u < w.labels ? w.label[w.at(t, u)] : w.blank[w.at(t, u)];
      }
      std::vector<double> best(static_cast<size_t>(w.labels + 1), -infinity);
      for (t = w.frames - 1; t >= 0; --t)
        for (int64_t u = w.labels; u >= 0; --u) {
          const auto at = static_cast<size_t>(u);
          const bool end = t + 1 == w.frames && u == w.labels;
          best[at] = w.blank[w.at(t, u)] + (end ? 0 : best[at]);
          if (u < w.labels) best[at] = std::max(best[at], w.label[w.at(t, u)] + best[at + 1]);
        }
      CHECK(found == doctest::Approx(best[0]).epsilon(1e-12));
    }
  }
}

TEST_CASE("gradients of a long sequence in f32 are as good as those of a short one") {
  // With equal logits the share of paths through a cell is a quotient of numbers of paths.
  const int64_t frames = 400, labels = 80, classes = 8;
  const TransducerBatch batch = transducer_batch(classes, {frames}, {labels});
  const Reference x(batch.dense_shape());
  const Reference gradient = gradient_of(x, batch, {}, 1, f32);
  const auto choose = [](int64_t t, int64_t u) {  // ways from (0, 0) to (t, u)
    return std::lgamma(static_cast<double>(t + u + 1)) - std::lgamma(static_cast<double>(t + 1)) -
           std::lgamma(static_cast<double>(u + 1));
  };
  double worst = 0;
  for (int64_t t = 0; t < frames; ++t)
    for (int64_t u = 0; u <= labels; ++u) {
      const double share =
          std::exp(choose(t, u) + choose(frames - 1 - t, labels - u) - choose(frames - 1, labels));
      // Class 7 is the blank, and class 0 never a label.
      const double error = std::abs(gradient.at({0, t, u, 0}) - share / classes);
      worst = std::max(worst, error * classes);
    }
  // A logarithm in f32 would be off by 2^-14 of the share here; sums of ~480 roundings by far less.
  CHECK(worst <= 64 * epsilon(f32));
}

TEST_CASE("transducer_loss of more than 2^31 logits, on a GPU; of a few on the CPU") {
  const bool large = test_device().is_cuda();
  const int64_t frames = large ? 2100 : 21, labels = large ? 999 : 9, classes = 1024;
  const TransducerBatch batch = transducer_batch(classes, {frames}, {labels});
  const Tensor x = zeros(batch.dense_shape(), bf16, test_device());
  const Tensor targets = batch.targets_tensor(i64, test_device());
  const TransducerLossResult result = transducer_loss(
      x, targets, batch.frames_tensor(i64, test_device()), batch.labels_tensor(i64, test_device()));
  // Equal logits: all paths weigh the same, classes^-(T + U), and there are so many of them.
  const auto t = static_cast<double>(frames), u = static_cast<double>(labels);
  const double paths = std::lgamma(t + u) - std::lgamma(u + 1) - std::lgamma(t);
  const double loss = (t + u) * std::log(static_cast<double>(classes)) - paths;
  CHECK(std::abs(result.loss.item() - loss) <= 4 * epsilon(f32) * loss);
  const Tensor g =
      transducer_loss_backward(x, targets, result, full({}, 1, f32, test_device()), {}, true)
          .select(0, 0);
  const auto row = [&](int64_t at_t, int64_t at_u) {
    return Reference::of(g.select(0, at_t).select(0, at_u));
  };
  // All paths pass the first cell and the last one; of the first, u in t - 1 + u emit.
  const double emitted = u / (t - 1 + u);
  const auto label = static_cast<size_t>(batch.targets[0][0]);
  const Reference first = row(0, 0), last = row(frames - 1, labels);
  for (size_t k = 0; k < static_cast<size_t>(classes); ++k) {
    const bool blank = k + 1 == static_cast<size_t>(classes);
    const auto check = [](double actual, double expected) {
      CHECK(std::abs(actual - expected) <= epsilon(bf16) * std::abs(expected));
    };
    const double p = 1.0 / static_cast<double>(classes);
    check(last[k], p - (blank ? 1 : 0));
    check(first[k], p - (blank ? 1 - emitted : k == label ? emitted : 0));
  }
}

TEST_CASE("transducer_loss: another call's result is refused") {
  const Tensor x = zeros({2, 3, 3, 4}), targets = full({2, 2}, 1, i64);
  const Tensor frames = full({2}, 3, i64), labels = full({2}, 2, i64), one = full({}, 1);
  const TransducerLossResult right = transducer_loss(x, targets, frames, labels);
  const auto refused = [&](const TransducerLossResult& result, const std::string& what) {
    CHECK_THROWS_WITH_AS(transducer_loss_backward(x, targets, result, one),
                         ("transducer_loss_backward: " + what).c_str(), Error);
  };
  const std::string other = "the result given is not that of these logits and targets";
  TransducerLossResult result = right;
  result.lse = full({1}, 1).expand({18});
  refused(result, other);
  result = right;
  result.lattice = result.lattice.slice(1, 1, 30);
  refused(result, other);
  CHECK_THROWS_AS(transducer_posterior(x, targets, result), Error);
  CHECK_THROWS_AS(transducer_alignment(x, targets, result), Error);
  result = right;
  result.utterances = clone(result.utterances);
  result.utterances.data<int64_t>()[4] = 10;
  refused(result, "utterance 1 of 3 frames and 2 labels at row 10 of 18");
  CHECK_THROWS_AS(
      transducer_loss_backward(x, targets, right, full({2}, 1), {.reduction = Reduction::none}),
      Error);
}
