// An LSTM that learns a text byte by byte, and writes on by itself.
#include <bs/nn.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

using namespace bs;

namespace {

constexpr const char* verse =
    "the quick brown fox jumps over the lazy dog, and the lazy dog sleeps on. ";

struct CharLSTM : nn::Module {
  nn::Embedding embedding{{.rows = 256, .width = 32}};
  nn::LSTM lstm{{.input = 32, .hidden = 96, .batch_first = true}};
  nn::Linear head{{.in = 96, .out = 256}};
  CharLSTM() {
    register_module("embedding", embedding);
    register_module("lstm", lstm);
    register_module("head", head);
  }
  /// Logits [batch, steps, 256] of the bytes that follow tokens [batch, steps], and the last state.
  std::pair<Variable, nn::LSTMState> forward(const Tensor& tokens,
                                             const nn::LSTMState& state = {}) const {
    const nn::LSTM::Output out = lstm.forward(embedding.forward(tokens), state);
    return {head.forward(out.y), out.state()};
  }
};

std::string written(const CharLSTM& model, std::string text, int count) {
  const NoGrad guard;
  nn::LSTMState state;
  std::vector<int64_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  Tensor tokens = Tensor::from(std::span<const int64_t>(bytes), {1, std::ssize(bytes)});
  for (int i = 0; i < count; ++i) {
    const auto [logits, next] = model.forward(tokens, state);
    state = next;
    const Tensor last = logits.data().select(1, logits.size(1) - 1);
    tokens = multinomial(softmax(last * 2.0), 1);  // a little sharper than the model is
    text += static_cast<char>(tokens.item());
  }
  return text;
}

}  // namespace

int main() {
  manual_seed(3);
  std::string text;
  for (int i = 0; i < 40; ++i) text += verse;
  data::Loader loader(data::TextDataset::from(text), {.batch = 8, .context = 48, .dtype = i64});

  CharLSTM model;
  const std::vector<Variable> parameters = model.parameters();
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  double last = 0;
  for (int step = 1; step <= 120; ++step) {
    const data::Batch batch = loader.next();
    optimizer.zero_grad();
    const Variable loss = cross_entropy(model.forward(batch.inputs).first, batch.targets);
    loss.backward();
    optimizer.step({.norm = optim::grad_norm(parameters), .max_norm = 1});
    last = loss.data().item();
    if (step % 40 == 0) std::printf("step %d: loss %.3f\n", step, last);
  }
  std::puts(written(model, "the quick", 60).c_str());
  return last < 0.5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
