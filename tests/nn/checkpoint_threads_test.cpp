// Checkpoints while other threads look: at the model that is saved, and at the file that is
// replaced.
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/random.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/adamw.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

struct Training {
  nn::Linear layer;
  optim::AdamW optimizer{layer, {.weight_decay = .1}};

  explicit Training(double value) : layer({.in = 16, .out = 8, .device = test_device()}) {
    for (const Variable& p : layer.parameters())
      copy(full(p.shape(), value, f32, test_device()), p.data());
  }
  nn::TrainingState state(int64_t step) {
    return {.model = &layer, .optimizer = &optimizer, .step = step};
  }
};

bool holds(const nn::Linear& layer, double value) {
  for (const Variable& p : layer.parameters())
    for (const double x : Reference::of(p.data()).values)
      if (x != value) return false;
  return true;
}

}  // namespace

TEST_CASE("checkpoint: threads compute with a model while it is saved") {
  const Scratch folder;
  Training training(2);
  std::atomic<bool> done = false;
  std::atomic<int> computed = 0, wrong = 0;
  {
    std::vector<std::jthread> readers;
    for (int t = 0; t < 2; ++t)
      readers.emplace_back([&] {
        const NoGrad no_grad;
        const Tensor x = full({3, 16}, 1, f32, test_device());
        while (!done || computed == 0) {
          for (const double y : Reference::of(training.layer.forward(x).data()).values)
            wrong += y == 2 * 16 + 2 ? 0 : 1;
          ++computed;
        }
      });
    for (int step = 1; step <= 20; ++step)
      nn::save_checkpoint(folder / "run", training.state(step));
    done = true;
  }
  CHECK(wrong == 0);
  CHECK(nn::Checkpoint(folder / "run").step() == 20);
}

TEST_CASE("checkpoint: who reads a file that is replaced gets one of its versions, whole") {
  const Scratch folder;
  const std::string path = folder / "run";
  nn::save_checkpoint(path, Training(0).state(0));
  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0, read = 0;
  {
    std::vector<std::jthread> readers;
    for (int t = 0; t < 2; ++t)
      readers.emplace_back([&] {
        Training mine(-1);
        while (!done || read == 0) {
          const nn::Checkpoint checkpoint(path);
          checkpoint.restore(mine.state(0));
          wrong += holds(mine.layer, static_cast<double>(checkpoint.step())) ? 0 : 1;
          ++read;
        }
      });
    std::vector<std::jthread> writers;  // the last to finish wins
    for (int t = 1; t <= 2; ++t)
      writers.emplace_back([&, t] {
        Training own(t);
        for (int i = 0; i < 20; ++i) nn::save_checkpoint(path, own.state(t));
      });
    writers.clear();
    done = true;
  }
  CHECK(wrong == 0);
  CHECK(folder.files() == 1);
}
