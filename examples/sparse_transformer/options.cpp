#include <bs/examples/sparse_transformer/options.h>
#include <bs/examples/support/command_line.h>

#include <algorithm>

namespace bs::example {
namespace {

/// What options are called and how they are written, in the order of --help.
struct Line : CommandLine {
  explicit Line(Options& options);
  void add_model(Options& o);
  void add_pattern(PatternOptions& p);
  void add_training(Options& o);
  void add_sample(Options& o);

  std::string schedule = "cosine";
};

Line::Line(Options& options)
    : CommandLine("Trains a block-sparse transformer on the bytes of a text, and writes like it.",
                  "sparse_transformer", options) {
  add_model(options);
  add_pattern(options.pattern);
  add_training(options);
  add_sample(options);
  add_graph();
  add_run();
}

void Line::add_model(Options& o) {
  add("--layers", o.layers, "transformer blocks", "Model")->check(in_range(1, 1000));
  add("--heads", o.heads, "attention heads", "Model")->check(in_range(1, 1024));
  add("--width", o.width, "width, a multiple of 8 x heads", "Model")->check(in_range(8, 65536));
  add("--mlp-factors", o.mlp_factors,
      "feed-forward weights are Kronecker products of so many; 0: dense", "Model")
      ->check(in_range(0, 8));
  add("--context", o.context, "bytes seen, a multiple of the block", "Model")
      ->check(in_range(8, 1 << 20));
}

void Line::add_pattern(PatternOptions& p) {
  const auto group = "Pattern";
  add("--pattern", p.name, "which blocks of the attention matrix are kept", group)
      ->check(CLI::IsMember(
          {"fixed", "strided", "bigbird", "longformer", "sliding", "dense", "random"}));
  add("--block", p.block, "side of a block", group)->check(CLI::IsMember({8, 16, 32, 64, 128}));
  const CLI::Validator count = in_range(1, 1 << 20);
  add("--local-blocks", p.local_blocks, "fixed: window", group)->check(count);
  add("--global-blocks", p.global_blocks, "fixed, bigbird, longformer", group)->check(count);
  add("--stride", p.stride, "strided: window and stride", group)->check(count);
  add("--window-blocks", p.window_blocks, "bigbird, longformer, sliding", group)->check(count);
  add("--random-blocks", p.random_blocks, "bigbird", group)->check(in_range(0, 1 << 20));
  add("--density", p.density, "random: share of the blocks", group)->check(in_range(0.0, 1.0));
  add_flag("--per-head", p.per_head, "another variant of the pattern for each head", group);
}

void Line::add_training(Options& o) {
  add("--batch", o.batch, "sequences a step", "Data")->check(in_range(1, 1 << 20));
  add("--seed", o.seed, "of weights and data order", "Data");
  add("--data", o.data, "the text, any file", "Training")->check(existing_file());
  add("--steps", o.steps, "optimiser steps in all", "Training")
      ->check(in_range(int64_t{0}, int64_t{1} << 40));
  add("--lr", o.learning_rate, "highest learning rate", "Training");
  add("--schedule", schedule, "how the rate falls after the warm-up", "Training")
      ->check(CLI::IsMember({"cosine", "linear", "constant"}));
  add("--warmup", o.warmup, "steps up to the highest rate", "Training")
      ->check(in_range(int64_t{0}, int64_t{1} << 40));
  add("--eval-every", o.eval_every, "steps between evaluations and checkpoints", "Training")
      ->check(in_range(int64_t{1}, int64_t{1} << 40));
}

void Line::add_sample(Options& o) {
  add("--generate", o.generate, "bytes to write at the end", "Sample")
      ->check(in_range(int64_t{0}, int64_t{1} << 30));
  add("--temperature", o.temperature, "0: always the likeliest byte", "Sample")
      ->check(in_range(0.0, 100.0));
  add("--top-k", o.top_k, "choose among the k likeliest; 0: all", "Sample")
      ->check(in_range(0, 256));
  add("--prompt", o.prompt, "how the sample begins", "Sample");
}

/// Blocks that a row of a pattern keeps at most.
int64_t most_kept(const PatternOptions& o, int64_t rows) {
  const int64_t global = o.global_blocks;
  if (o.name == "fixed") return o.local_blocks + (rows / o.local_blocks + 1) * global;
  if (o.name == "strided") return 2 * int64_t{o.stride} + rows / o.stride;
  if (o.name == "bigbird") return o.window_blocks + global + o.random_blocks;
  if (o.name == "longformer") return o.window_blocks + global;
  return o.name == "sliding" ? o.window_blocks : rows;
}

/// A list of blocks grows with the square of the context, while a file grows with the context.
void check_pattern(const Options& o) {
  constexpr int64_t most = 1 << 24;
  const int64_t rows = o.context / o.pattern.block, heads = o.pattern.per_head ? o.heads : 1;
  const int64_t blocks = heads * rows * std::min(rows, most_kept(o.pattern, rows));
  if (blocks > most)
    BS_THROW(UsageError, "--pattern {} may keep {} blocks at --context {}, over {}; --block is {}",
             o.pattern.name, blocks, o.context, most, o.pattern.block);
}

/// A step's tensors follow the batch, which a checkpoint sets too and no file bounds.
void check_batch(const Options& o) {
  constexpr int64_t most = 1 << 26;  // of which the logits alone are 32 GiB in bf16
  if (int64_t{o.batch} * o.context > most)
    BS_THROW(UsageError, "--batch {} at --context {} is over {} bytes of text a step", o.batch,
             o.context, most);
}

void check(const Options& o) {
  if (o.width % (8 * o.heads) != 0)
    BS_THROW(UsageError, "--width {} is not a multiple of 8 x --heads {}", o.width, o.heads);
  if (o.context % o.pattern.block != 0)
    BS_THROW(UsageError, "--context {} is not a multiple of --block {}", o.context,
             o.pattern.block);
  check_pattern(o);
  check_batch(o);
  if (!(o.learning_rate > 0)) BS_THROW(UsageError, "--lr {} is not positive", o.learning_rate);
  if (o.generate > 0 && o.prompt.empty())
    throw UsageError("--prompt is empty: a sample begins with at least one byte");
  check_graph(o.device, o.graph);
  if (o.data.empty() && !o.smoke) throw UsageError("--data FILE is needed: the text to learn");
}

}  // namespace

bool parse_options(int argc, char** argv, Options& options) {
  Line line(options);
  if (!line.parse(argc, argv)) return false;
  options.schedule = optim::parse_decay(line.schedule);
  check(options);
  line.keep();
  return true;
}

}  // namespace bs::example
