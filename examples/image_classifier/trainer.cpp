#include <bs/autograd/loss.h>
#include <bs/autograd/view.h>
#include <bs/examples/image_classifier/trainer.h>
#include <bs/examples/support/resume.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>
#include <bs/nn/optim/clip_grad_norm.h>

#include <algorithm>
#include <utility>

namespace bs::example {
namespace {

constexpr double weight_decay = 0.02, max_gradient_norm = 2;
constexpr const char* fingerprint_key = "images";
/// Of a sparse model: how often which share of its blocks makes room for others.
constexpr int64_t regrow_every = 30;
constexpr double regrown = 0.1;

/// Weights are drawn from the default generator as the model is made.
const Options& seeded(const Options& o) {
  manual_seed(o.seed);
  return o;
}

/// forward(batch) gives logits on the batch's device.
template <class Forward>
Score score(const Images& images, int64_t classes, Device device, const Forward& forward) {
  const NoGrad no_grad;
  Score score{.confusion = std::vector<int64_t>(static_cast<size_t>(classes * classes))};
  int64_t right = 0;
  for (int64_t from = 0; from < images.count(); from += 256) {
    const int64_t to_ = std::min(from + 256, images.count());
    const ImageBatch batch = images_as_they_are(images, from, to_, device);
    const Variable logits = forward(batch.images);
    score.loss += cross_entropy(logits, batch.classes).data().item() *
                  static_cast<double>(to_ - from) / static_cast<double>(images.count());
    const Tensor said = to(argmax(logits.data(), -1), Device::cpu());
    for (int64_t i = 0; i < to_ - from; ++i) {
      const int64_t truth = images.classes[static_cast<size_t>(from + i)];
      const auto guess = static_cast<int64_t>(said.select(0, i).item());
      right += guess == truth;
      ++score.confusion[static_cast<size_t>(truth * classes + guess)];
    }
  }
  score.accuracy = static_cast<double>(right) / static_cast<double>(images.count());
  return score;
}

Variable flat(const Tensor& images) {
  return Variable(images.view({images.size(0), images.size(2) * images.size(3)}));
}

}  // namespace

Score linear_score(const ImageData& data, uint64_t seed) {
  manual_seed(seed);
  const nn::Linear model({.in = data.train.size * data.train.size, .out = data.classes()});
  optim::AdamW optimizer(optim::decay_groups(model, {.weight_decay = 0.1}));
  Options options;
  options.batch = 256, options.augment = false, options.seed = seed, options.device = Device::cpu();
  constexpr int64_t steps = 600;
  for (int64_t step = 0; step < steps; ++step) {
    const ImageBatch batch = training_batch(data.train, options, step);
    optimizer.zero_grad();
    cross_entropy(model.forward(flat(batch.images)), batch.classes).backward();
    optimizer.set_learning_rate(5e-3 * (1 - static_cast<double>(step) / steps));
    optimizer.step();
  }
  return score(data.held_out, data.classes(), Device::cpu(),
               [&](const Tensor& images) { return model.forward(flat(images)); });
}

Trainer::Trainer(const Options& options, const ImageData& data)
    : options_(options),
      data_(data),
      model_(make_model(options, [&] { return ResNet(data.classes(), seeded(options)); })),
      pruning_(model_),
      layouts_(model_),
      schedule_of_pruning_{.steps = options.steps, .prune = options.prune},
      optimizer_(new_optimizer()),
      schedule_{.highest = options.learning_rate,
                .lowest = options.learning_rate / 50,
                .warmup = std::min<int64_t>(50, options.steps),
                .steps = options.steps,
                .decay = optim::Decay::cosine},
      graph_(options.device, options.graph, !layouts_.applies()) {  // layouts change too often
  if (!options.resume) return;
  layouts_.restore(options.resume->metadata());
  optimizer_ = new_optimizer();
  restore(*options.resume,
          {.data = options.data,
           .key = fingerprint_key,
           .fingerprint = data.fingerprint,
           .steps = options.steps},
          state());
  if (steps_done() > 0 && schedule_of_pruning_.stage(steps_done() - 1) > 0) pruning_.find();
}

std::unique_ptr<optim::AdamW> Trainer::new_optimizer() const {
  return std::make_unique<optim::AdamW>(
      optim::decay_groups(model_, {.weight_decay = weight_decay}));
}

nn::TrainingState Trainer::state() {
  return {.model = &model_,
          .optimizer = optimizer_.get(),
          .generator = &default_generator(),
          .step = optimizer_->steps(),
          .metadata = options_.kept};
}

void Trainer::change_blocks(int64_t done) {
  const int stage = schedule_of_pruning_.stage(done);
  const bool prunes = done > 0 && stage != schedule_of_pruning_.stage(done - 1);
  const bool settles = done >= options_.steps * 9 / 10;  // new blocks have too little time left
  const bool regrows =
      layouts_.applies() && !prunes && stage > 0 && !settles && done % regrow_every == 0;
  if (prunes || regrows) graph_.reset();
  const double density = PruningSchedule::densities[stage];
  if (!layouts_.applies()) {
    if (prunes) pruning_.prune(density);
    return;
  }
  LayoutPruning::Changes changes;
  if (prunes) changes = layouts_.prune(density);
  if (regrows) changes = layouts_.regrow(regrown, options_.seed + static_cast<uint64_t>(done));
  if (changes.empty()) return;
  const auto last = std::exchange(optimizer_, new_optimizer());
  optim::carry_state(*last, *optimizer_, changes);
}

std::vector<Tensor> Trainer::compute(const Tensor& images, const Tensor& classes) {
  optimizer_->zero_grad();
  const Variable loss = cross_entropy(model_.forward(cast(images, options_.dtype)), classes);
  loss.backward();
  const Tensor norm = optim::grad_norm(model_.parameters());
  optimizer_->step({.norm = norm, .max_norm = max_gradient_norm});
  pruning_.apply();
  return {loss.data(), norm};
}

Trainer::Step Trainer::step() {
  const int64_t done = steps_done();
  change_blocks(done);
  const ImageBatch batch = training_batch(data_.train, options_, done);
  const double rate = schedule_.at(done);
  optimizer_->set_learning_rate(rate);
  const std::vector<Tensor> told =
      graph_.run({batch.images, batch.classes}, *optimizer_,
                 [this](const std::vector<Tensor>& of) { return compute(of[0], of[1]); });
  const int stage = schedule_of_pruning_.stage(done);
  const double left = layouts_.applies() ? layouts_.density() : PruningSchedule::densities[stage];
  return {steps_done(), rate, left, told[0], told[1]};
}

Score Trainer::held_out() {
  model_.eval();
  Score result = score(data_.held_out, data_.classes(), options_.device, [&](const Tensor& images) {
    return model_.forward(cast(images, options_.dtype));
  });
  model_.train();
  return result;
}

void Trainer::save(const std::string& path) {
  nn::TrainingState all = state();
  all.metadata[fingerprint_key] = data_.fingerprint;
  all.metadata.merge(layouts_.texts());
  nn::save_checkpoint(path, all);
}

}  // namespace bs::example
