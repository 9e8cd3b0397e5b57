#include <bs/autograd/grad_check.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/host_view.h>
#include <bs/lib/philox.h>

#include <cmath>
#include <span>

namespace bs {

std::string to_string(const GradCheckEntry& e) {
  const std::string where =
      e.output < 0 ? format("along projection {}", e.element)
                   : format("at element {} from element {} of the output", e.element, e.output);
  return format("the gradient of input {} {} is {}, differences give {}: error {}, allowed {}",
                e.input, where, e.gradient, e.difference, e.error, e.allowed);
}

namespace {

using Values = std::vector<double>;

Values values_of(const Tensor& x) {
  Values values;
  for_each_value<double>(host_view(x), [&](double v) { values.push_back(v); });
  return values;
}

Tensor tensor_of(const Values& values, const Tensor& like) {
  return Tensor::from(std::span(values), like.shape()).to(like.device());
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Random signs; `sequence` picks which.
Values signs(size_t count, uint64_t seed, uint64_t sequence) {
  Values s(count);
  for (size_t i = 0; i < count; ++i)
    s[i] = (philox(seed, i / 128, sequence).word[i / 32 % 4] >> i % 32 & 1U) ? 1 : -1;
  return s;
}

/// The function with the inputs at hand, which may be moved one at a time.
class Subject {
 public:
  Subject(const std::function<Variable(const std::vector<Variable>&)>& function,
          const std::vector<Variable>& inputs)
      : function_(function), inputs_(inputs) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].requires_grad()) continue;
      BS_CHECK(inputs_[i].dtype() == f64, "gradcheck: input {} is {}; differences need f64", i,
               inputs_[i].dtype());
      inputs_[i] = Variable(clone(inputs_[i].data()), true);  // gradients of our own
    }
    y_ = result();
    BS_CHECK(y_.dtype() == f64, "gradcheck: the function gives {}; differences need f64",
             y_.dtype());
    BS_CHECK(values_of(y_.data()) == call(),
             "gradcheck: the function gives different results for the same inputs");
  }

  const Variable& input(size_t i) const { return inputs_[i]; }
  size_t outputs() const { return static_cast<size_t>(y_.data().numel()); }

  Values call() const { return values_of(result().data()); }

  /// The vector-Jacobian product of input `i`.
  Values gradient(size_t i, const Values& dy) const {
    const Variable& x = inputs_[i];
    if (moved_) y_ = result();  // what it saved has been changed in place
    moved_ = false;
    if (y_.requires_grad()) y_.backward(tensor_of(dy, y_.data()), {.retain_graph = true});
    Values dx = x.grad().defined() ? values_of(x.grad())
                                   : Values(static_cast<size_t>(x.data().numel()), 0.0);
    for (const Variable& v : inputs_)
      if (v.requires_grad()) v.zero_grad();
    return dx;
  }

  /// The derivative of all outputs when element `j` of input `i` moves.
  Values column(size_t i, int64_t j, double eps) const {
    const Tensor element = inputs_[i].data().view({-1}).slice(0, j, j + 1);
    const double middle = element.item();
    return difference(eps, [&](double h) { fill(element, middle + h); });
  }

  /// The derivative of all outputs when input `i` moves along `direction`.
  Values along(size_t i, const Values& direction, double eps) const {
    const Tensor& x = inputs_[i].data();
    const Values middle = values_of(x);
    return difference(eps, [&](double h) {
      Values moved = middle;
      for (size_t j = 0; j < moved.size(); ++j) moved[j] += h * direction[j];
      copy(tensor_of(moved, x), x);
    });
  }

 private:
  /// Recorded for the differences too: a function may take gradients itself.
  Variable result() const {
    const EnableGrad recording;
    return function_(inputs_);
  }

  template <class Move>
  Values difference(double eps, Move&& move) const {
    moved_ = true;
    move(eps);
    Values slope = call();
    move(-eps);
    const Values below = call();
    move(0);
    for (size_t o = 0; o < slope.size(); ++o) slope[o] = (slope[o] - below[o]) / (2 * eps);
    return slope;
  }

  const std::function<Variable(const std::vector<Variable>&)>& function_;
  std::vector<Variable> inputs_;
  mutable Variable y_;
  mutable bool moved_ = false;  ///< inputs have been elsewhere since y_ was recorded
};

/// Keeps the entry that is furthest beyond (or nearest to) what is allowed.
class Worst {
 public:
  explicit Worst(const GradCheckOptions& options) : options_(options) {}
  const GradCheckEntry& entry() const { return entry_; }
  void see(GradCheckEntry e) {
    e.error = std::abs(e.gradient - e.difference);
    e.allowed = options_.atol + options_.rtol * std::abs(e.difference);
    if (entry_.input < 0 || !(e.error / e.allowed <= entry_.error / entry_.allowed)) entry_ = e;
  }

 private:
  const GradCheckOptions& options_;
  GradCheckEntry entry_;
};

void check_all(const Subject& subject, size_t i, double eps, Worst& worst) {
  std::vector<Values> gradients;
  for (size_t o = 0; o < subject.outputs(); ++o) {
    Values dy(subject.outputs(), 0.0);
    dy[o] = 1;
    gradients.push_back(subject.gradient(i, dy));
  }
  for (int64_t j = 0; j < subject.input(i).data().numel(); ++j) {
    const Values column = subject.column(i, j, eps);
    for (size_t o = 0; o < column.size(); ++o)
      worst.see({.input = static_cast<int>(i),
                 .element = j,
                 .output = static_cast<int64_t>(o),
                 .gradient = gradients[o][static_cast<size_t>(j)],
                 .difference = column[o]});
  }
}

void check_projections(const Subject& subject, size_t i, const GradCheckOptions& options,
                       Worst& worst) {
  const auto n = static_cast<size_t>(subject.input(i).data().numel());
  const size_t m = subject.outputs();
  const double scale = 1 / std::sqrt(static_cast<double>(n) * static_cast<double>(m));
  for (int sample = 0; sample < options.samples; ++sample) {
    const auto sequence = 2 * static_cast<uint64_t>(sample);
    const Values u = signs(m, options.seed, sequence);
    const Values v = signs(n, options.seed, sequence + 1);
    worst.see({.input = static_cast<int>(i),
               .element = sample,
               .gradient = scale * dot(subject.gradient(i, u), v),
               .difference = scale * dot(u, subject.along(i, v, options.eps))});
  }
}

}  // namespace

GradCheckEntry gradcheck(const std::function<Variable(const std::vector<Variable>&)>& function,
                         const std::vector<Variable>& inputs, const GradCheckOptions& options) {
  BS_CHECK(function, "gradcheck: there is no function to call");
  const Subject subject(function, inputs);
  Worst worst(options);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const int64_t entries = inputs[i].data().numel() * static_cast<int64_t>(subject.outputs());
    if (entries <= options.full) {
      check_all(subject, i, options.eps, worst);
    } else {
      check_projections(subject, i, options, worst);
    }
  }
  const GradCheckEntry& entry = worst.entry();
  BS_CHECK(entry.error <= entry.allowed, "gradcheck: {}", to_string(entry));
  return entry;
}

}  // namespace bs
