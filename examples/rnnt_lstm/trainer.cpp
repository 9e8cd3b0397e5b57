#include <bs/autograd/copy.h>
#include <bs/examples/rnnt_lstm/trainer.h>
#include <bs/examples/support/resume.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/host_view.h>
#include <bs/lib/integers.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/optim/lamb.h>

#include <algorithm>
#include <thread>

namespace bs::example {
namespace {

constexpr double weight_decay = 0.01;
constexpr const char* fingerprint_key = "data";
/// Batches of graphs have few shapes.
constexpr data::SpeechPadding graph_padding{.frames = 16, .labels = 16};

/// Weights are drawn from the default generator as the model is made.
nn::RNNTOptions seeded(const Options& options, int64_t characters) {
  manual_seed(options.seed);
  return model_options(options, characters);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& options, const nn::Module& model) {
  if (options.optimizer == "lamb")
    return std::make_unique<optim::Lamb>(
        optim::decay_groups(model, LambOptions{.weight_decay = weight_decay}));
  return std::make_unique<optim::AdamW>(
      optim::decay_groups(model, AdamWOptions{.beta2 = 0.98, .weight_decay = weight_decay}));
}

std::vector<float> values_of(const Variable& v) {
  std::vector<float> values;
  for_each_value<float>(host_view(v.data()), [&](float x) { values.push_back(x); });
  return values;
}

/// Threads that make features: on a GPU the cores have nothing else to do, and it waits for them.
int workers(Device device) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return device.is_cuda() ? std::clamp(cores - 2, 1, 12) : 1;
}

data::FeatureStatistics statistics(const Options& options, const data::Utterances& utterances) {
  std::vector<data::Frames> frames;
  data::LogMel mel(feature_options(options).mel);
  for (const data::Utterance& u : utterances) {
    mel.reset(0);
    frames.push_back(mel.push(u.samples));
  }
  return data::statistics_of(frames);
}

}  // namespace

Recogniser::Recogniser(const Options& options, const data::Alphabet& alphabet)
    : model(seeded(options, alphabet.size())),
      options_(feature_options(options)),
      alphabet_(alphabet) {
  register_module("rnnt", model);
  mean = register_buffer("mean", zeros({options.mels}, f32));
  deviation = register_buffer("deviation", ones({options.mels}, f32));
}

data::SpeechFeatures Recogniser::features() const {
  return data::SpeechFeatures(options_,
                              data::FeatureStatistics{values_of(mean), values_of(deviation)});
}

void Recogniser::set_statistics(const data::FeatureStatistics& s) const {
  copy(Tensor::from(std::span(s.mean), mean.shape()), mean.data());
  copy(Tensor::from(std::span(s.deviation), deviation.shape()), deviation.data());
}

Tensor tensor_of(const data::Frames& frames) {
  return Tensor::from(std::span<const float>(frames.values), {frames.count(), frames.width});
}

Trainer::Trainer(const Options& options, const Corpus& corpus)
    : options_(options),
      corpus_(corpus),
      recogniser_(make_model(options, [&] { return Recogniser(options, corpus.alphabet()); })),
      optimizer_(make_optimizer(options, recogniser_)),
      average_(recogniser_, options.ema),
      schedule_{.highest = options.learning_rate,
                .lowest = options.learning_rate / 50,
                .warmup = std::min(options.warmup, options.steps),
                .steps = options.steps,
                .hold = std::clamp<int64_t>(options.steps - options.warmup, 0, options.hold)},
      graph_(options.device, options.graph),
      loader_(corpus.train(),
              (recogniser_.set_statistics(statistics(options, *corpus.train())),
               recogniser_.features()),
              {.batch = options.batch,
               .augment = {.slowest = 1 - options.speed,
                           .fastest = 1 + options.speed,
                           .masks = options.masks,
                           .spec = {.frequency_width = options.mels / 5, .time_masks = 4}},
               .padding = graph_.wanted() ? graph_padding : data::SpeechPadding{},
               .seed = options.seed,
               .device = options.device,
               .workers = workers(options.device)}) {
  if (!options.resume) return;
  restore(*options.resume,
          {.data = options.data,
           .key = fingerprint_key,
           .fingerprint = corpus.fingerprint(),
           .steps = options.steps},
          state());
}

nn::TrainingState Trainer::state() {
  return {.model = &recogniser_,
          .optimizer = optimizer_.get(),
          .generator = &default_generator(),
          .loader = &loader_,
          .step = optimizer_->steps(),
          .metadata = options_.kept,
          .average = &average_};
}

void Trainer::save(const std::string& path) {
  nn::TrainingState all = state();
  all.metadata[fingerprint_key] = corpus_.fingerprint();
  all.metadata[alphabet_key] = corpus_.alphabet().text();
  nn::save_checkpoint(path, all);
}

Variable Trainer::loss_of(const data::SpeechBatch& batch, int64_t rows) const {
  return recogniser_.model.loss(
      {.features = cast(batch.features.to(options_.device), options_.dtype),
       .lengths = batch.lengths,
       .targets = batch.targets.to(options_.device),
       .target_lengths = batch.target_lengths},
      {.split = options_.split, .rows = rows});
}

std::vector<Tensor> Trainer::compute(const data::SpeechBatch& batch, int64_t rows) {
  optimizer_->zero_grad();
  const Variable loss = loss_of(batch, rows);
  loss.backward();
  const Tensor norm = optim::grad_norm(recogniser_.parameters());
  optimizer_->step({.norm = norm, .max_norm = options_.clip, .skip_nonfinite = true});
  average_.update(*optimizer_);
  return {loss.data(), norm};
}

/// Rows of packed logits: a few quarters of those that padded ones would have.
int64_t Trainer::graph_rows(const data::SpeechBatch& batch) const {
  const int64_t needed =
      recogniser_.model.packed_rows(batch.lengths, batch.target_lengths, options_.split);
  const int64_t count = batch.features.size(0);
  const int64_t part = ceil_div(count, std::min<int64_t>(options_.split, count));
  const int64_t frames = ceil_div(batch.features.size(1), options_.time_stack);
  const int64_t padded = part * frames * (batch.targets.size(1) + 1);
  return round_up(needed, std::max<int64_t>(ceil_div(padded, 4), 1));
}

Trainer::Step Trainer::step() {
  data::SpeechBatch batch = loader_.next();
  int64_t rows = -1;
  if (graph_.wanted()) {
    rows = graph_rows(batch);
    batch.lengths = batch.lengths.to(options_.device);
    batch.target_lengths = batch.target_lengths.to(options_.device);
  }
  const double rate = schedule_.at(optimizer_->steps());
  optimizer_->set_learning_rate(rate);
  const auto work = [this, rows](const std::vector<Tensor>& of) {
    return compute({.features = of[0], .lengths = of[1], .targets = of[2], .target_lengths = of[3]},
                   rows);
  };
  const std::vector<Tensor> told =
      graph_.run({batch.features, batch.lengths, batch.targets, batch.target_lengths}, *optimizer_,
                 work, rows);
  return {optimizer_->steps(), rate, batch.seconds, told[0], told[1]};
}

void Trainer::check() {
  data::SpeechFeatures features = recogniser_.features();
  std::vector<data::Frames> frames;
  std::vector<std::vector<int64_t>> tokens;
  for (const data::Utterance& u : *corpus_.held_out()) {
    if (static_cast<int64_t>(frames.size()) == options_.batch) break;
    frames.push_back(features.whole(u.samples));
    tokens.push_back(u.tokens);
  }
  recogniser_.eval();  // draws no random numbers: a run goes on as if nobody had looked
  optimizer_->zero_grad();
  const Variable loss = loss_of(data::collate(frames, tokens, features.hop()), -1);
  loss.backward();
  const double norm = optim::grad_norm(recogniser_.parameters()).item();
  optimizer_->zero_grad();
  recogniser_.train();
  check_finite("held-out loss", loss.data().item(), steps_done());
  check_finite("norm of the gradient", norm, steps_done());
}

std::string transcribe(const Recogniser& recogniser, std::span<const float> samples, int beam) {
  decode::RNNTScorer scorer(recogniser.model);
  const data::Frames frames = recogniser.features().whole(samples);
  if (frames.count() == 0) return "";
  scorer.append(tensor_of(frames));
  scorer.finish();
  return recogniser.alphabet().decode(
      (beam == 0 ? decode::greedy_decode(scorer, {.max_symbols = 8})
                 : decode::beam_decode(scorer, {.width = beam, .class_threshold = 6}).front())
          .tokens);
}

Evaluation Trainer::evaluate(const data::Utterances& utterances, int64_t most) {
  const optim::AverageScope averages(average_);
  recogniser_.eval();
  Evaluation result;
  for (const data::Utterance& u : utterances) {
    if (static_cast<int64_t>(result.transcripts.size()) == most) break;
    const Transcript t{corpus_.text(u), transcribe(recogniser_, u.samples, options_.beam)};
    result.characters += decode::character_errors(t.reference, t.hypothesis);
    result.words += decode::word_errors(t.reference, t.hypothesis);
    result.transcripts.push_back(t);
  }
  recogniser_.train();
  return result;
}

decode::LatticePosterior Trainer::alignment(const data::Utterance& utterance) {
  const NoGrad no_grad;
  const optim::AverageScope averages(average_);
  recogniser_.eval();
  const nn::RNNT& model = recogniser_.model;
  const Tensor features = tensor_of(recogniser_.features().whole(utterance.samples));
  const auto encoded =
      model.encode(cast(features.unsqueeze(0).to(options_.device), options_.dtype));
  const Tensor tokens = Tensor::from(std::span<const int64_t>(utterance.tokens),
                                     {1, static_cast<int64_t>(utterance.tokens.size())});
  const Variable logits = model.joint(encoded.f, model.predict(tokens.to(options_.device)).g);
  recogniser_.train();
  return decode::lattice_posterior(logits.data().select(0, 0), utterance.tokens, model.blank());
}

}  // namespace bs::example
