#include <bs/examples/image_classifier/options.h>
#include <bs/examples/support/command_line.h>

namespace bs::example {
namespace {

/// What options are called and how they are written, in the order of --help.
struct Line : CommandLine {
  explicit Line(Options& o)
      : CommandLine("Trains a residual network on the letters and digits of fonts, and prunes it.",
                    "image_classifier", o) {
    add("--model", o.model,
        "resnet, of 6 n + 2 layers; sparse, the same with block-sparse weights; or a wide one: "
        "wrn, of 6 n + 4, or sparse-wrn",
        "Model")
        ->check(CLI::IsMember({"resnet", "sparse", "wrn", "sparse-wrn"}));
    add("--block", o.block, "channels a side of a sparse model's blocks", "Model")
        ->check(CLI::IsMember({8, 16, 32, 64, 128}));
    depth =
        add("--depth", o.depth, "layers; 8, of a wide one 16", "Model")->check(in_range(8, 1000));
    add("--width", o.width, "channels of the first convolution, a multiple of 8", "Model")
        ->check(in_range(8, 4096));
    widen = add("--widen", o.widen, "factor of the stages' channels; 1, of a wide one 2", "Model")
                ->check(in_range(1, 64));
    add("--size", o.size, "pixels a side", "Data")->check(in_range(int64_t{8}, int64_t{256}));
    add("--batch", o.batch, "images a step", "Data")->check(in_range(int64_t{2}, int64_t{1} << 20));
    add("--augment", o.augment, "whether to move, turn, shear and resize images, with noise",
        "Data");
    add("--seed", o.seed, "of weights and data order", "Data");
    add("--data", o.data, "a folder of folders of fonts (.ttf, .otf)", "Training")
        ->check(silent(CLI::ExistingDirectory));
    add("--steps", o.steps, "optimiser steps in all", "Training")
        ->check(in_range(int64_t{0}, int64_t{1} << 40));
    add("--lr", o.learning_rate, "highest learning rate", "Training");
    add("--prune", o.prune,
        "whether to prune to densities .5, .25 and .1 in the second half; a sparse model grows "
        "other blocks besides",
        "Training");
    add("--eval-every", o.eval_every, "steps between evaluations and checkpoints", "Training")
        ->check(in_range(int64_t{1}, int64_t{1} << 40));
    add_graph();
    add_run();
  }
  CLI::Option *depth, *widen;
};

void check(const Options& o) {
  const int extra = o.is_wide() ? 4 : 2;
  if ((o.depth - extra) % 6 != 0)
    BS_THROW(UsageError, "--depth {} is not 6 n + {}, as a {} has it", o.depth, extra, o.model);
  const int block = o.is_sparse() ? o.block : 8;
  if (o.width % block != 0)
    BS_THROW(UsageError, "--width {} is not a multiple of {}", o.width, block);
  constexpr int64_t most = 1 << 28;  // a step's tensors follow them, and no file bounds them
  if (o.batch * o.size * o.size > most)
    BS_THROW(UsageError, "--batch {} of --size {} is over {} pixels a step", o.batch, o.size, most);
  if (!(o.learning_rate > 0)) BS_THROW(UsageError, "--lr {} is not positive", o.learning_rate);
  check_graph(o.device, o.graph);
  if (o.data.empty() && !o.smoke) throw UsageError("--data FOLDER is needed: the fonts to learn");
}

}  // namespace

bool parse_options(int argc, char** argv, Options& options) {
  Line line(options);
  if (!line.parse(argc, argv)) return false;
  if (options.is_wide() && !options.resume) {
    // As if they were given: a checkpoint keeps what options say.
    const auto unless_given = [](CLI::Option& option, const char* value) {
      if (option.count() > 0) return;
      option.add_result(value);
      option.run_callback();
    };
    unless_given(*line.depth, "16");
    unless_given(*line.widen, "2");
  }
  check(options);
  line.keep();
  return true;
}

}  // namespace bs::example
