#include <bs/autograd/loss.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/data/loader.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/optim/lr_schedule.h>
#include <bs/nn/transformer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

data::TextDataset text() {
  std::string all;
  for (int i = 0; i < 40; ++i) all += "the cat sat on the mat and saw the rat; ";
  return data::TextDataset::from(all);
}

/// A whole training run in small: everything that a resumed one must bring back is in use.
struct Run {
  nn::SparseTransformer model;
  optim::AdamW optimizer;
  data::Loader loader;
  optim::LearningRateSchedule schedule{.highest = 3e-3, .warmup = 3, .steps = 60};
  int64_t step = 0;

  explicit Run(uint64_t seed, double dropout = 0, DType dtype = f32)
      : model(seeded(seed, dropout, dtype)),
        optimizer(optim::decay_groups(model, {.weight_decay = 0.1})),
        loader(text(), {.batch = 4, .context = 32, .seed = 5, .device = test_device()}) {}

  static nn::SparseTransformerOptions seeded(uint64_t seed, double dropout, DType dtype) {
    manual_seed(seed);
    return {.vocabulary = 128,
            .context = 32,
            .width = 32,
            .layers = 2,
            .heads = 2,
            .block = 8,
            .pattern =
                [](const patterns::Size& size) {
                  return patterns::sliding_window(size, {.window_blocks = 3});
                },
            .dropout = dropout,
            .dtype = dtype,
            .device = test_device()};
  }

  nn::TrainingState state() {
    return {.model = &model,
            .optimizer = &optimizer,
            .generator = &default_generator(),
            .loader = &loader,
            .step = step};
  }

  /// Returns the loss.
  double train_step() {
    const auto [inputs, targets] = loader.next();
    const Variable loss = cross_entropy(model.forward(inputs), targets);
    optimizer.zero_grad();
    loss.backward();
    const Tensor norm = optim::grad_norm(model.parameters());
    optimizer.set_learning_rate(schedule.at(step++));
    optimizer.step({.norm = norm, .max_norm = 1});
    return loss.data().item();
  }

  std::vector<double> train(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) losses.push_back(train_step());
    return losses;
  }
};

void check_same(Run& a, Run& b) {
  const auto p = a.model.named_parameters(), q = b.model.named_parameters();
  for (size_t i = 0; i < p.size(); ++i) {
    CAPTURE(p[i].name);
    CHECK(Reference::of(p[i].variable.data()).values == Reference::of(q[i].variable.data()).values);
  }
  const auto s = a.optimizer.state(), t = b.optimizer.state();
  for (size_t i = 0; i < s.size(); ++i) {
    CAPTURE(s[i].name);
    CHECK(Reference::of(s[i].tensor).values == Reference::of(t[i].tensor).values);
  }
}

}  // namespace

TEST_CASE("training: ten steps are five, a checkpoint, and five in fresh objects, bit for bit") {
  for (DType dtype : {f32, bf16}) {
    const Scratch folder;
    Run straight(1, 0.1, dtype);
    const std::vector<double> losses = straight.train(10);

    Run first(1, 0.1, dtype);
    CHECK(first.train(5) == std::vector<double>(losses.begin(), losses.begin() + 5));
    nn::save_checkpoint(folder / "run", first.state());

    Run second(99, 0.1, dtype);
    second.train(2);
    const nn::Checkpoint checkpoint(folder / "run");
    checkpoint.restore(second.state());
    second.step = checkpoint.step();
    CHECK(second.train(5) == std::vector<double>(losses.begin() + 5, losses.end()));
    check_same(straight, second);
  }
}

TEST_CASE("training: a small model learns a small text") {
  for (DType dtype : {f32, bf16}) {
    Run run(2, 0, dtype);
    const std::vector<double> losses = run.train(60);
    CHECK(losses.front() > 4.5);  // log 128 is 4.85
    CHECK(losses.back() < 2.5);
  }
}
