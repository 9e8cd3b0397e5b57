// A safetensors file that PyTorch wrote, by golden/record_torch_file.py: its weights in modules of
// ours, and what PyTorch computed with them.
#include <bs/lib/patterns.h>
#include <bs/lib/safetensors.h>
#include <bs/nn/encoder_decoder.h>
#include <bs/nn/lstm.h>
#include <bs/nn/state_dict.h>
#include <bs/nn/transformer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

nn::StateDict file() {
  return load_safetensors(std::string(BS_GOLDEN) + "/torch_file.safetensors").tensors;
}

Tensor recorded(const std::string& name) { return file().at(name).to(test_device()); }

/// Both sum some tens of products in f32, in orders of their own.
void check_close(const Variable& y, const std::string& name) {
  const Reference ours = Reference::of(y.data()), theirs = Reference::of(file().at(name));
  REQUIRE(ours.shape == theirs.shape);
  double largest = 0, off = 0;
  for (size_t i = 0; i < ours.values.size(); ++i) {
    largest = std::max(largest, std::abs(theirs.values[i]));
    off = std::max(off, std::abs(ours.values[i] - theirs.values[i]));
  }
  CAPTURE(name);
  CHECK(off <= 1e-5 * largest);
}

}  // namespace

TEST_CASE("torch file: an LSTM has PyTorch's names") {
  nn::LSTM lstm({.input = 5,
                 .hidden = 6,
                 .layers = 2,
                 .batch_first = true,
                 .bidirectional = true,
                 .device = test_device()});
  nn::load_state_dict(lstm, file(), {.prefix = "lstm."});
  const nn::LSTM::Output out = lstm.forward(recorded("lstm_x"));
  check_close(out.y, "lstm_y");
  check_close(out.h, "lstm_h");
  check_close(out.c, "lstm_c");
}

TEST_CASE("torch file: an encoder layer has PyTorch's names") {
  nn::TransformerEncoderLayer layer(
      {.width = 16, .heads = 2, .hidden = 24, .dropout = 0, .block = 8, .device = test_device()});
  nn::load_state_dict(layer, file(), {.prefix = "encoder."});
  check_close(layer.forward(recorded("encoder_x")), "encoder_y");
}

TEST_CASE("torch file: a model of encoder layers becomes a SparseTransformer, and back") {
  nn::SparseTransformer model(
      {.vocabulary = 11,
       .context = 16,
       .width = 16,
       .layers = 2,
       .heads = 2,
       .block = 8,
       .pattern = [](const patterns::Size& s) { return patterns::dense(s, {.causal = true}); },
       .hidden = 24,
       .device = test_device()});
  const nn::StateDict state = nn::renamed(file(), nn::torch_encoder_names());
  nn::load_state_dict(model, state, {.prefix = "model."});
  check_close(model.forward(recorded("model_tokens")), "model_logits");

  const nn::StateDict theirs = file();
  nn::Renaming back;
  for (const auto& [from, to] : nn::torch_encoder_names()) back.emplace_back(to, from);
  for (const auto& [key, tensor] : nn::renamed(nn::state_dict(model), back, "model.")) {
    const std::string name = key;
    CAPTURE(name);
    REQUIRE(theirs.count(name) == 1);
    CHECK(Reference::of(tensor).values == Reference::of(theirs.at(name)).values);
  }
}

TEST_CASE("renamed: whole parts only, also next to each other, and no clashes") {
  const Tensor x = Tensor::from({1.0F});
  const auto names = [&](const std::string& path, const nn::Renaming& rules) {
    return nn::renamed({{path, x}}, rules, "p.").begin()->first;
  };
  CHECK(names("fc.fc.fc1", {{"fc", "a.b"}}) == "p.a.b.a.b.fc1");
  CHECK(names("a.b.c", {{"a.b", "x"}, {"x.c", "y"}}) == "p.y");
  CHECK(names("ab.b", {{"a", "x"}}) == "p.ab.b");
  CHECK_THROWS_WITH_AS(nn::renamed({{"a", x}, {"b", x}}, {{"a", "b"}}),
                       "renamed: two tensors become b", Error);
  CHECK_THROWS_WITH_AS(names("a", {{"", "b"}}), "renamed: a rule from '' to 'b'", Error);
}
