#include <bs/autograd/ctc_loss.h>
#include <bs/autograd/softmax.h>
#include <bs/kernels/fill.h>
#include <bs/tests/kernels/golden/ctc.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Case {
  int64_t frames, classes;
  std::vector<int64_t> inputs;
  std::vector<std::vector<int64_t>> targets;  ///< of each utterance, its own length
  CtcLossOptions options = {};

  int64_t batch() const { return static_cast<int64_t>(inputs.size()); }
  int64_t most_labels() const {
    size_t most = 0;
    for (const auto& one : targets) most = std::max(most, one.size());
    return static_cast<int64_t>(most);
  }
  Shape shape() const { return {frames, batch(), classes}; }
};

Tensor integers(const std::vector<int64_t>& values, DType dtype) {
  Reference r({static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) r[i] = static_cast<double>(values[i]);
  return r.tensor(dtype, test_device());
}

Variable loss_of(const Variable& x, const Case& c, DType index = i64, bool concatenated = false) {
  std::vector<int64_t> lengths;
  std::vector<int64_t> all;
  for (const auto& one : c.targets) {
    lengths.push_back(static_cast<int64_t>(one.size()));
    all.insert(all.end(), one.begin(), one.end());
    if (!concatenated)  // padding that would be wrong to read
      all.resize(all.size() + static_cast<size_t>(c.most_labels()) - one.size(), 99);
  }
  Tensor targets = integers(all, index);
  if (!concatenated) targets = targets.view({c.batch(), c.most_labels()});
  return ctc_loss(x, targets, integers(c.inputs, index), integers(lengths, index), c.options);
}

/// What a path says: without repeats, then without blanks.
std::vector<int64_t> said(const std::vector<int64_t>& path, int64_t blank) {
  std::vector<int64_t> out;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) out.push_back(path[t]);
  return out;
}

/// Losses by going through every path there is: only for a few frames and classes.
Reference losses_of(const Case& c, const Reference& x) {
  Reference losses({c.batch()});
  const int64_t blank = c.options.blank < 0 ? c.options.blank + c.classes : c.options.blank;
  for (int64_t b = 0; b < c.batch(); ++b) {
    const auto i = static_cast<size_t>(b);
    std::vector<int64_t> path(static_cast<size_t>(c.inputs[i]), 0);
    double total = 0;
    for (bool more = true; more;) {
      if (said(path, blank) == c.targets[i]) {
        double p = 1;
        for (size_t t = 0; t < path.size(); ++t) {
          double sum = c.options.logits ? 0 : 1;
          const auto row = static_cast<int64_t>(t);
          for (int64_t k = 0; c.options.logits && k < c.classes; ++k)
            sum += std::exp(x.at({row, b, k}));
          p *= std::exp(x.at({row, b, path[t]})) / sum;
        }
        total += p;
      }
      more = false;
      for (auto& digit : path) {  // the next path, counting in base `classes`
        if (++digit < c.classes) {
          more = true;
          break;
        }
        digit = 0;
      }
    }
    losses[i] = c.options.zero_infinity && total == 0 ? 0 : -std::log(total);
  }
  if (c.options.reduction == Reduction::none) return losses;
  Reference loss;
  for (size_t b = 0; b < losses.values.size(); ++b) {
    const double labels = std::max(1.0, static_cast<double>(c.targets[b].size()));
    loss[0] +=
        losses[b] /
        (c.options.reduction == Reduction::mean ? labels * static_cast<double>(c.batch()) : 1);
  }
  return loss;
}

void check_case(Case c, DType index = i64) {
  for (bool logits : {false, true})
    for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
      c.options.logits = logits;
      c.options.reduction = reduction;
      CAPTURE(logits);
      CAPTURE(to_string(reduction));
      check_op({.name = "ctc_loss",
                .inputs = {c.shape()},
                .op = [=](const Variables& v) { return loss_of(v[0], c, index); },
                .reference = [=](const References& in) { return losses_of(c, in[0]); },
                .low = -2,
                .high = 0.5});
    }
}

}  // namespace

TEST_CASE("ctc_loss against every path there is") {
  check_case({5, 3, {5, 3, 4, 5}, {{1, 2}, {1}, {2, 2}, {}}});
  check_case({6, 3, {6, 5}, {{0, 1, 0}, {1, 1}}, {.blank = 2}}, i32);
  check_case({4, 4, {4, 1}, {{3, 1, 2, 1}, {2}}, {.blank = -4}});
  check_case({1, 2, {1}, {{1}}});
  check_case({2, 1, {2}, {{}}});
}

TEST_CASE("ctc_loss of utterances too short for their labels") {
  const Case c = {4, 3, {4, 1, 0, 0}, {{1, 1}, {1, 2}, {1}, {}}, {.reduction = Reduction::none}};
  const Reference x = random_reference(c.shape(), 1, -2, 0);
  Variable v(x.tensor(f64, test_device()), true);
  Variable loss = loss_of(v, c);
  const Reference values = Reference::of(loss.data());
  CHECK(std::isfinite(values[0]));
  CHECK(values[1] == infinity);
  CHECK(values[2] == infinity);
  CHECK(values[3] == 0);
  loss.backward(full({4}, 1, f64, test_device()));
  const Reference g = Reference::of(v.grad());
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t b = 1; b < 4; ++b)
      for (int64_t k = 0; k < 3; ++k) CHECK(g.at({t, b, k}) == 0);
  Case zero = c;
  zero.options.zero_infinity = true;
  CHECK(Reference::of(loss_of(v, zero).data()).values == std::vector<double>{values[0], 0, 0, 0});
}

TEST_CASE("ctc_loss gives what PyTorch gives") {
  const int64_t frames = 12, batch = 4, classes = 6;
  Reference x({frames, batch, classes});
  for (size_t i = 0; i < x.values.size(); ++i)
    x[i] = 3 * std::sin(0.7 * static_cast<double>(i) + 0.1 * static_cast<double>(i % 5));
  Case c = {frames, classes, {12, 9, 5, 3}, {{1, 2, 2, 3}, {4, 1}, {3, 3, 3}, {1, 2, 3, 4}}};
  for (const CtcGolden& golden : ctc_golden) {
    const std::string reduction = golden.reduction;
    CAPTURE(reduction);
    c.options = {.blank = golden.blank, .zero_infinity = true};
    for (Reduction r : {Reduction::none, Reduction::mean, Reduction::sum})
      if (to_string(r) == reduction) c.options.reduction = r;
    for (bool logits : {false, true})
      for (bool concatenated : {false, true}) {
        c.options.logits = logits;
        const Variable v(x.tensor(f64, test_device()), true);
        const Variable loss = loss_of(logits ? v : log_softmax(v, -1), c, i64, concatenated);
        Reference upstream(loss.shape());
        for (size_t b = 0; b < upstream.values.size(); ++b)
          upstream[b] = 1 - 0.6 * static_cast<double>(b);
        loss.backward(upstream.tensor(f64, test_device()));
        const Reference values = Reference::of(loss.data());
        for (size_t b = 0; b < values.values.size(); ++b)
          CHECK(values[b] == doctest::Approx(golden.loss[b]).epsilon(1e-13));
        const Reference g = Reference::of(v.grad());
        for (size_t i = 0; i < g.values.size(); ++i)
          CHECK(std::abs(g[i] - golden.gradient[i]) <= 1e-13);
      }
  }
}

TEST_CASE("ctc_loss of long input in f32 is as good as in f64") {
  // Uniform probabilities: a label's states hold a share of paths, all of one probability.
  for (int64_t labels : {300, 700}) {
    CAPTURE(labels);
    Case c = {1600, 30, {1600, 1500}, {{}, {}}, {.reduction = Reduction::none, .logits = true}};
    for (auto& one : c.targets)
      for (int64_t u = 0; u < labels; ++u) one.push_back(1 + u * u % 29);
    const Reference x =
        Reference::of(random_reference(c.shape(), 2, -3, 3).tensor(f32, Device::cpu()));
    const auto run = [&](DType dtype) {
      const Variable v(x.tensor(dtype, test_device()), true);
      const Variable loss = loss_of(v, c);
      loss.backward(full({2}, 1, dtype, test_device()));
      return References{Reference::of(loss.data()), Reference::of(v.grad())};
    };
    const References exact = run(f64);
    const References single = run(f32);
    CHECK(largest(exact[0]) > 2000);
    check_close("loss", single[0], exact[0], 4 * epsilon(f32) * largest(exact[0]));
    // Thousands of factors with a relative error of a rounding each, of either sign.
    check_close("gradient", single[1], exact[1], 256 * epsilon(f32));
  }
}

TEST_CASE("NaN stays with its utterance in ctc_loss") {
  const Case c = {4, 3, {4, 4}, {{1}, {2}}, {.reduction = Reduction::none}};
  Reference x = random_reference(c.shape(), 3, -2, 0);
  x.at({2, 1, 0}) = std::nan("");
  const Reference loss = Reference::of(loss_of(x.tensor(f32, test_device()), c).data());
  CHECK(std::isfinite(loss[0]));
  CHECK(std::isnan(loss[1]));
}

TEST_CASE("ctc_loss and lengths or labels out of range") {
  Case c = {4, 3, {4, 4}, {{1}, {2}}, {.reduction = Reduction::none}};
  const Reference x = random_reference(c.shape(), 3, -2, 0);
  const auto refused = [&](const char* message) {
    if (test_device().is_cpu()) {
      CHECK_THROWS_WITH_AS(loss_of(x.tensor(f32, test_device()), c), message, Error);
      return;
    }
    const Variable v(x.tensor(f32, test_device()), true);
    const Variable result = loss_of(v, c);
    const Reference loss = Reference::of(result.data());
    CHECK(std::isfinite(loss[0]));
    CHECK(std::isnan(loss[1]));
    result.backward(full({2}, 1, f32, test_device()));
    const Reference gradient = Reference::of(v.grad());
    double of_first = 0;
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t k = 0; k < 3; ++k) {
        of_first += std::abs(gradient.at({t, 0, k}));
        CHECK(gradient.at({t, 1, k}) == 0);
      }
    CHECK(of_first > 0);
  };
  for (const bool logits : {false, true}) {
    c.options.logits = logits;
    c.targets[1][0] = 2;
    c.inputs[1] = 5;
    refused("ctc_loss: input_lengths[1] is 5, outside of [0, 4]");
    c.inputs[1] = 4;
    c.targets[1][0] = 3;
    refused("ctc_loss: target 0 of utterance 1 is 3, outside of [0, 3) or the blank");
    c.targets[1][0] = 0;
    refused("ctc_loss: target 0 of utterance 1 is 0, outside of [0, 3) or the blank");
  }
}

TEST_CASE("ctc_loss refuses what does not fit") {
  const Tensor x = Tensor::empty({4, 2, 3}, f32);
  const Tensor targets = zeros({2, 2}, i64);
  const Tensor lengths = zeros({2}, i64);
  CHECK_THROWS_WITH_AS(ctc_loss(x.select(0, 0), targets, lengths, lengths),
                       "ctc_loss: input [2, 3], expected [frames, batch, classes]", Error);
  CHECK_THROWS_WITH_AS(ctc_loss(x, zeros({3, 2}, i64), lengths, lengths),
                       "ctc_loss: targets [3, 2] for input [4, 2, 3]", Error);
  CHECK_THROWS_WITH_AS(ctc_loss(x, targets, zeros({3}, i64), lengths),
                       "ctc_loss: lengths [3] for input [4, 2, 3]", Error);
  CHECK_THROWS_WITH_AS(ctc_loss(x, targets, lengths, lengths, {.blank = 3}),
                       "ctc_loss: blank 3 is outside of 3 classes", Error);
  CHECK_THROWS_WITH_AS(ctc_loss(x, zeros({3}, i64), lengths, full({2}, 1, i64)),
                       "ctc_loss: 3 concatenated targets, but lengths that add up to 2", Error);
  CHECK_THROWS_WITH_AS(ctc_loss(x, zeros({3}, i64), lengths, full({2}, 0x1p62, i64)),
                       "ctc_loss: target_lengths[0] is 4.61169e+18, outside of [0, 3]", Error);
}

TEST_CASE("ctc_loss_backward refuses another call's result") {
  const Tensor x = zeros({4, 2, 3}), wide = zeros({4, 2, 5});
  const Tensor targets = full({2, 2}, 1, i64), lengths = full({2}, 2, i64);
  const CtcLossResult of_x = ctc_loss(x, targets, lengths, lengths);
  const Tensor one = full({}, 1);
  const auto refused = [&](const CtcLossResult& result, const CtcLossOptions& options = {}) {
    CHECK_THROWS_WITH_AS(ctc_loss_backward(x, lengths, lengths, result, one, options),
                         "ctc_loss_backward: the result given is not that of this input", Error);
  };
  CtcLossResult result = of_x;
  result.totals = result.totals.slice(0, 0, 1);
  refused(result);
  result = of_x;
  result.lattice = result.lattice.slice(3, 0, 3);
  refused(result);
  result = of_x;
  result.targets = full({2, 3}, 1, i64);
  refused(result);
  refused(of_x, {.reduction = Reduction::none});
  refused(of_x, {.logits = true});
  CHECK(ctc_loss_backward(x, lengths, lengths, of_x, one).shape() == x.shape());
}

TEST_CASE("ctc_loss: more labels than the GPU takes are refused") {
  if (!test_device().is_cuda()) return;
  const Tensor x = zeros({1, 1, 3}, f32, test_device());
  const Tensor one = full({1}, 1, i64, test_device());
  CHECK_THROWS_WITH_AS(ctc_loss(x, full({1, 2048}, 1, i64, test_device()), one, one),
                       "ctc_loss: 2048 labels, on this GPU at most 2047 in f32", Error);
}
