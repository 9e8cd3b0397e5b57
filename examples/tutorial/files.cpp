// Weights, arrays and memory out and in: safetensors, npy, checkpoints, DLPack.
#include <bs/nn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace bs;

namespace {

struct Model : nn::Module {
  nn::Linear body{{.in = 8, .out = 8}};
  nn::Linear head{{.in = 8, .out = 2}};
  Model() {
    register_module("body", body);
    register_module("head", head);
  }
  Variable forward(const Variable& x) const { return head.forward(tanh(body.forward(x))); }
};

void check(bool right, const char* what) {
  std::printf("%s: %s\n", what, right ? "the same" : "different");
  if (!right) std::exit(EXIT_FAILURE);
}

}  // namespace

int main() {
  const auto folder =
      std::filesystem::temp_directory_path() / ("bs_files_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  const Tensor x = randn({4, 8});

  // Weights by name; Python reads them with safetensors.torch.load_file.
  Model model, other;
  save_safetensors(path("model.safetensors"), {nn::state_dict(model), {{"made by", "a tutorial"}}});
  nn::load_state_dict(other, load_safetensors(path("model.safetensors")).tensors);
  check(equal(model.forward(x).data(), other.forward(x).data()), "weights");

  // A part of a model, in another dtype.
  Model half;
  half.to(bf16);
  const nn::LoadReport report =
      nn::load_state_dict(half, nn::state_dict(model.head, "head."), {.strict = false});
  check(report.missing.size() == 2, "names that a part lacks");

  // An array; Python reads it with numpy.load.
  save_npy(path("x.npy"), x);
  check(equal(x, load_npy(path("x.npy"))), "array");

  // All that a run needs to go on.
  optim::AdamW optimizer(model);
  sum(model.forward(x)).backward();
  optimizer.step();
  const nn::TrainingState state{.model = &model, .optimizer = &optimizer, .step = 1};
  nn::save_checkpoint(path("run.safetensors"), state);
  const Tensor trained = clone(model.head.weight.data());
  optimizer.step();
  nn::Checkpoint(path("run.safetensors")).restore(state);
  check(equal(trained, model.head.weight.data()), "checkpoint");

  // Memory that another library sees, and one of theirs: no copy.
  const Tensor shared = dlpack::from_dlpack(dlpack::to_dlpack(x));
  check(shared.data() == x.data(), "memory");

  std::filesystem::remove_all(folder);
  return EXIT_SUCCESS;
}
