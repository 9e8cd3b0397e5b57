#include <bs/autograd/loss.h>
#include <bs/autograd/view.h>
#include <bs/examples/sparse_transformer/pattern.h>
#include <bs/examples/sparse_transformer/trainer.h>
#include <bs/examples/support/files.h>
#include <bs/examples/support/resume.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/sample.h>

#include <algorithm>
#include <cstdio>

namespace bs::example {
namespace {

constexpr double held_out_share = 0.05;
constexpr int64_t measured_bytes = 64 << 10;
constexpr double weight_decay = 0.1;
constexpr double max_gradient_norm = 1;
constexpr const char* fingerprint_key = "text";

Variable loss_of(const nn::SparseTransformer& model, const data::Batch& batch) {
  return cross_entropy(model.forward(batch.inputs), batch.targets);
}

/// Weights are drawn from the default generator as the model is made.
nn::SparseTransformerOptions model_options(const Options& o) {
  manual_seed(o.seed);
  return {.vocabulary = 256,
          .context = o.context,
          .width = o.width,
          .layers = o.layers,
          .heads = o.heads,
          .block = o.pattern.block,
          .pattern = make_pattern(o.pattern, o.seed),
          .mlp_factors = o.mlp_factors,
          .dtype = o.dtype,
          .device = o.device};
}

}  // namespace

Text::Text(const data::TextDataset& all, const Options& options)
    : parts_(all.split(held_out_share)),
      fingerprint_(
          format("{} bytes, hash {}", all.size(), fnv1a(all.bytes().data(), all.bytes().size()))) {
  const int64_t window = options.context + 1;
  const int64_t fit = parts_.held_out.size() / window;
  if (fit == 0)
    BS_THROW(UsageError, "--data {}: {} bytes are too few; the twentieth held out must have {}",
             options.data, all.size(), window);
  const int64_t count = std::clamp(measured_bytes / options.context, int64_t{1}, fit);
  const Bigram bigram(parts_.train.bytes());
  for (int64_t i = 0; i < count; ++i) {
    starts_.push_back((parts_.held_out.size() - window) * i / std::max(count - 1, int64_t{1}));
    const auto bytes = parts_.held_out.slice(starts_.back(), starts_.back() + window);
    bigram_loss_ += bigram.loss(bytes.bytes()) / static_cast<double>(count);
  }
}

Trainer::Trainer(const Options& options, const Text& text)
    : options_(options),
      text_(text),
      model_(make_model(options, [&] { return nn::SparseTransformer(model_options(options)); })),
      optimizer_(optim::decay_groups(model_, {.beta2 = 0.95, .weight_decay = weight_decay})),
      schedule_{.highest = options.learning_rate,
                .lowest = options.learning_rate / 10,
                .warmup = std::min(options.warmup, options.steps),
                .steps = options.steps,
                .decay = options.schedule},
      loader_(text.train(), {.batch = options.batch,
                             .context = options.context,
                             .seed = options.seed,
                             .device = options.device}),
      graph_(options.device, options.graph) {
  if (!options.resume) return;
  restore(*options.resume,
          {.data = options.data,
           .key = fingerprint_key,
           .fingerprint = text.fingerprint(),
           .steps = options.steps},
          state());
}

nn::TrainingState Trainer::state() {
  return {.model = &model_,
          .optimizer = &optimizer_,
          .generator = &default_generator(),
          .loader = &loader_,
          .step = optimizer_.steps(),
          .metadata = options_.kept};
}

std::vector<Tensor> Trainer::compute(const data::Batch& batch) {
  optimizer_.zero_grad();
  const Variable loss = loss_of(model_, batch);
  loss.backward();
  const Tensor norm = optim::grad_norm(model_.parameters());
  optimizer_.step({.norm = norm, .max_norm = max_gradient_norm});
  return {loss.data(), norm};
}

Trainer::Step Trainer::step() {
  const data::Batch batch = loader_.next();
  const double rate = schedule_.at(optimizer_.steps());
  optimizer_.set_learning_rate(rate);
  const std::vector<Tensor> told =
      graph_.run({batch.inputs, batch.targets}, optimizer_, [this](const std::vector<Tensor>& of) {
        return compute({of[0], of[1]});
      });
  return {optimizer_.steps(), rate, told[0], told[1]};
}

double Trainer::held_out_loss() {
  const NoGrad no_grad;
  const std::span<const int64_t> starts = text_.starts();
  const auto batch = static_cast<size_t>(options_.batch);
  double sum = 0;
  for (size_t first = 0; first < starts.size(); first += batch) {
    const auto rows = starts.subspan(first, std::min(batch, starts.size() - first));
    const data::Batch windows =
        data::windows(text_.held_out(), rows, options_.context, i32, options_.device);
    sum += loss_of(model_, windows).data().item() * static_cast<double>(rows.size());
  }
  return sum / static_cast<double>(starts.size());
}

void Trainer::save(const std::string& path) {
  nn::TrainingState all = state();
  all.metadata[fingerprint_key] = text_.fingerprint();
  nn::save_checkpoint(path, all);
}

void Trainer::sample(const std::function<void(char)>& on_byte) {
  const std::string& prompt = options_.prompt;
  std::vector<int64_t> tokens;
  for (const char c : prompt) tokens.push_back(static_cast<uint8_t>(c));
  // A generator of its own: writing a sample on the way changes nothing in the training.
  Generator generator(options_.seed);
  nn::generate(model_, tokens,
               {.count = options_.generate,
                .sample = {.temperature = options_.temperature, .top_k = options_.top_k},
                .on_token = [&](int64_t token) { on_byte(static_cast<char>(token)); }},
               generator);
}

}  // namespace bs::example
