#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/safetensors.h>
#include <bs/nn/state_dict.h>
#include <bs/tests/fuzz/harness.h>

#include <vector>

using namespace bs;

namespace {

struct Model : nn::Module {
  Variable weight = register_parameter("weight", ones({3, 2}));
  Variable bias = register_parameter("bias", ones({3}));
};

}  // namespace

// A file of weights that somebody else made, into a model: all of it, or nothing.
BS_HARNESS(state_dict) {
  nn::StateDict state;
  if (!fuzz::takes([&] { state = load_safetensors(fuzz::file_of("input", bytes)).tensors; }))
    return;
  for (const bool strict : {true, false}) {
    Model model;
    const Tensor weight = clone(model.weight.data()), bias = clone(model.bias.data());
    nn::LoadReport report;
    if (fuzz::takes([&] { report = nn::load_state_dict(model, state, {.strict = strict}); })) {
      fuzz::require(report.missing.size() + state.size() == report.unexpected.size() + 2,
                    "every name is loaded, missing or unexpected");
    } else {
      fuzz::require(fuzz::same(weight, model.weight.data()) && fuzz::same(bias, model.bias.data()),
                    "a file that is refused changes no weight");
    }
  }
  fuzz::takes([&] {
    const nn::StateDict renamed = nn::renamed(state, {{"weight", "w"}, {"a", ""}}, "model.");
    fuzz::require(renamed.size() == state.size(), "names that were two stay two");
  });
}
