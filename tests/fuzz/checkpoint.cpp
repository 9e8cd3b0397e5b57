#include <bs/kernels/fill.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/optim/sgd.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

namespace {

struct Model : nn::Module {
  Variable weight = register_parameter("weight", ones({3, 2}));
  Variable bias = register_parameter("bias", ones({3}));
};

/// What the files of the corpus are checkpoints of.
struct Training {
  Generator generator{1};
  Model model;
  optim::Sgd optimizer{model, {.momentum = .9}};

  nn::TrainingState state() {
    return {.model = &model, .optimizer = &optimizer, .generator = &generator};
  }
};

}  // namespace

BS_HARNESS(checkpoint) {
  const std::string path = fuzz::file_of("input", bytes);
  std::unique_ptr<nn::Checkpoint> first;
  if (!fuzz::takes([&] { first = std::make_unique<nn::Checkpoint>(path); })) return;
  Training training;
  nn::TrainingState state = training.state();
  state.step = first->step();
  state.metadata = first->metadata();
  const std::string before = fuzz::path_of("before"), after = fuzz::path_of("after");
  save_checkpoint(before, state);
  const bool fits = fuzz::takes([&] { first->restore(state); });
  save_checkpoint(after, state);
  const nn::Checkpoint saved(after);
  fuzz::require(saved.step() == first->step() && saved.metadata() == first->metadata(),
                "step and metadata are what they were");
  if (fits) return;
  const Safetensors was = load_safetensors(before), is = load_safetensors(after);
  fuzz::require(was.metadata == is.metadata, "a checkpoint that is refused changes no number");
  for (const auto& [name, tensor] : was.tensors)
    fuzz::require(fuzz::same(tensor, is.tensors.at(name)), "nor a tensor");
}
