#include <bs/examples/kronecker/text.h>

#include <bs/examples/support/step_graph.h>
#include <bs/examples/support/step_profile.h>
#include <bs/examples/support/training.h>
#include <bs/nn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numbers>
#include <string>

namespace bs::example {

namespace {

constexpr int64_t context = 16, code = 32, width = context * code, hidden = 2048;
constexpr int64_t batch = 256, bytes = 256;

/// Codes of 16 bytes side by side, two inner layers, and logits of the byte that follows.
struct TextModel : nn::Module {
  TextModel(bool product, Device device)
      : embedding({.rows = bytes, .width = code, .device = device}),
        first(inner(product, width, hidden, device)),
        second(inner(product, hidden, width, device)),
        head({.in = width, .out = bytes, .device = device}) {
    register_module("embedding", embedding);
    register_module("first", first.module());
    register_module("second", second.module());
    register_module("head", head);
  }

  Variable forward(const Tensor& tokens) const {
    const Variable x = reshape(embedding.forward(tokens), {tokens.size(0), width});
    return head.forward(gelu(second.forward(gelu(first.forward(x)))));
  }

  nn::Embedding embedding;
  nn::Layer first, second;
  nn::Linear head;

 private:
  static nn::Layer inner(bool product, int64_t in, int64_t out, Device device) {
    if (product)
      return nn::Layer::make<nn::KroneckerLinear>({.in = in, .out = out, .device = device});
    return nn::Layer::make<nn::Linear>({.in = in, .out = out, .device = device});
  }
};

/// The text, and windows of the part that no model learns from.
class Text {
 public:
  Text(const data::TextDataset& all, Device device) : device_(device) {
    constexpr int64_t most = 8192, least = 2048;
    BS_CHECK(all.size() >= least, "text: {} bytes; {} are expected", all.size(), least);
    data::TextDataset::Split parts = all.split(.05);
    train_ = parts.train;
    held_out_ = parts.held_out;
    const int64_t last = held_out_.size() - context - 1, count = std::min(most, last);
    for (int64_t i = 0; i < count; ++i) starts_.push_back(last * i / count);
  }

  data::Loader loader() const {
    return data::Loader(
        train_, {.batch = batch, .context = context, .seed = 1, .dtype = i64, .device = device_});
  }

  /// Bits a byte of the part held out.
  double bits(const TextModel& model) const {
    const NoGrad guard;
    double sum = 0, count = 0;
    for (size_t at = 0; at < starts_.size(); at += batch) {
      const std::span<const int64_t> some =
          std::span(starts_).subspan(at, std::min<size_t>(batch, starts_.size() - at));
      const data::Batch b = data::windows(held_out_, some, context, i64, device_);
      const auto size = static_cast<double>(some.size());
      sum += size * loss_of(model, b).data().item();
      count += size;
    }
    return sum / count / std::numbers::ln2;
  }

  Device device() const { return device_; }

  static Variable loss_of(const TextModel& model, const data::Batch& b) {
    return cross_entropy(model.forward(b.inputs), contiguous(b.targets.select(1, context - 1)));
  }

 private:
  Device device_;
  data::TextDataset train_, held_out_;
  std::vector<int64_t> starts_;
};

struct Training {
  int steps;
  double rate;
  std::string graph;       ///< as KroneckerOptions has it
  std::string trace = {};  ///< file for a profile of some steps; empty: none
};

/// Milliseconds a step.
double train(const TextModel& model, const Text& text, const Training& t) {
  StepProfile profile(t.trace);
  data::Loader loader = text.loader();
  optim::AdamW optimizer(model, {.learning_rate = t.rate});
  StepGraph graph(text.device(), t.graph);
  const std::vector<Variable> parameters = model.parameters();
  const Clock::time_point start = Clock::now();
  for (int step = 0; step < t.steps; ++step) {
    profile.next();
    optimizer.set_learning_rate(t.rate * std::min(1.0, 2.0 * (t.steps - step) / t.steps));
    const data::Batch next = loader.next();
    const auto compute = [&](const std::vector<Tensor>& of) {
      optimizer.zero_grad();
      const Variable loss = Text::loss_of(model, {of[0], of[1]});
      loss.backward();
      optimizer.step({.norm = optim::grad_norm(parameters), .max_norm = 1});
      return std::vector<Tensor>{loss.data()};
    };
    const Tensor loss = graph.run({next.inputs, next.targets}, optimizer, compute)[0];
    if ((step + 1) % 100 == 0 || step + 1 == t.steps) check_finite("loss", loss.item(), step + 1);
  }
  const double time = 1e3 * seconds_since(start) / std::max(t.steps, 1);
  profile.finish();
  return time;
}

/// Sets a model to what comes closest to a dense one, and returns the error of the weights.
double fit(const TextModel& dense, TextModel& product) {
  nn::load_state_dict(product, nn::state_dict(dense), {.strict = false});  // all but the weights
  const auto one = [](const nn::Layer& from, const nn::Layer& to) {
    return dynamic_cast<const nn::KroneckerLinear&>(to.module())
        .fit(dynamic_cast<const nn::Linear&>(from.module()).weight.data());
  };
  return std::max(one(dense.first, product.first), one(dense.second, product.second));
}

int64_t inner_count(const TextModel& model) {
  return model.first.module().parameter_count() + model.second.module().parameter_count();
}

/// Milliseconds of a forward of a batch, without gradients.
double forward_time(const TextModel& model, const Text& text) {
  const NoGrad guard;
  const data::Batch b = text.loader().next();
  std::vector<double> times;
  for (int run = 0; run < 5; ++run) {
    const Clock::time_point start = Clock::now();
    (void)model.forward(b.inputs).data().to(Device::cpu());
    times.push_back(1e3 * seconds_since(start));
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

struct Bits {
  double dense, product, fitted, tuned;
};

Bits compare(const Text& text, const KroneckerOptions& o) {
  constexpr double rate = 2e-3;
  const auto row = [&](const char* name, const TextModel& model, double bits, double step) {
    std::printf("%-34s %10.3f %12lld %10.2f", name, bits,
                static_cast<long long>(inner_count(model)), forward_time(model, text));
    std::printf(step > 0 ? " %10.2f\n" : "\n", step);
    std::fflush(stdout);
  };
  std::printf("%-34s %10s %12s %10s %10s\n", "inner layers", "bits/byte", "parameters",
              "ms forward", "ms a step");
  Bits bits{};
  const TextModel dense(false, o.device), product(true, o.device);
  TextModel fitted(true, o.device);
  const double dense_step = train(dense, text, {o.steps, rate, o.graph});
  row("dense", dense, bits.dense = text.bits(dense), dense_step);
  const double step = train(product, text, {o.steps, rate, o.graph, o.profile});
  row("factors", product, bits.product = text.bits(product), step);
  const double error = fit(dense, fitted);
  row("the dense ones' fit", fitted, bits.fitted = text.bits(fitted), 0);
  const double tuned_step = train(fitted, text, {o.steps / 2, rate, o.graph});
  row("that, trained half as long again", fitted, bits.tuned = text.bits(fitted), tuned_step);
  std::printf("the fit is %.2f of the dense weights' norm away\n", error);
  return bits;
}

}  // namespace

void compress_text(const KroneckerOptions& options) {
  if (options.data.empty()) BS_THROW(UsageError, "text: --data FILE names the text");
  manual_seed(1);
  compare(Text(data::TextDataset::read(options.data), options.device), options);
}

void smoke_text(const KroneckerOptions& options) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog, and ";
  KroneckerOptions o = options;
  o.steps = 8;
  manual_seed(1);
  const Bits bits = compare(Text(data::TextDataset::from(text), options.device), o);
  for (const double b : {bits.dense, bits.product, bits.tuned})
    BS_CHECK(b < 7.5, "a model takes {} bits a byte where one that knows nothing takes 8", b);
}

}  // namespace bs::example
