#include <bs/examples/sparse_transformer/smoke.h>
#include <bs/examples/sparse_transformer/trainer.h>
#include <bs/examples/support/training.h>

#include <array>
#include <cstdio>
#include <numbers>

namespace bs::example {
namespace {

/// Words in random order: the letters of a word follow from its beginning, which a bigram model
/// forgets.
std::string words(size_t bytes) {
  constexpr std::array list = {"attention", "block",   "sparse", "gradient", "matrix", "tensor",
                               "pattern",   "forward", "kernel", "library",  "memory", "stride",
                               "backward",  "softmax", "column", "weights"};
  std::string text;
  for (uint32_t state = 1; text.size() < bytes;) {
    state = state * 1664525 + 1013904223;
    text += list[state >> 28];
    text += ' ';
  }
  return text;
}

}  // namespace

void smoke(const Options& given) {
  Options options;
  options.device = given.device;
  options.dtype = given.dtype;
  options.pattern.block = 16;
  options.pattern.local_blocks = 2;
  options.pattern.per_head = true;
  options.layers = 2;
  options.heads = 2;
  options.width = 64;
  options.context = 64;
  options.batch = 8;
  options.steps = 200;
  options.learning_rate = 5e-3;
  options.warmup = 20;
  const Text text(data::TextDataset::from(words(100000)), options);

  const auto trainer = train_and_resume<Trainer>(options, text);
  const double loss = trainer->held_out_loss(), bigram = text.bigram_loss();
  std::printf("held out: %.3f bits/byte, bigram %.3f\n", loss / std::numbers::ln2,
              bigram / std::numbers::ln2);
  BS_CHECK(loss < 0.75 * bigram, "smoke: learnt too little: loss {}, bigram {}", loss, bigram);
}

}  // namespace bs::example
