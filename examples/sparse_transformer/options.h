#pragma once
/** @file The command line. */
#include <bs/examples/support/run_options.h>
#include <bs/nn/optim/lr_schedule.h>

#include <cstdint>
#include <string>

namespace bs::example {

/** @brief Which blocks of the attention matrix are kept; all patterns are causal. */
struct PatternOptions {
  std::string name = "fixed";
  int block = 32;         ///< elements a side
  int local_blocks = 4;   ///< fixed: window
  int global_blocks = 1;  ///< fixed, bigbird, longformer
  int stride = 4;         ///< strided
  int window_blocks = 5;  ///< bigbird, longformer, sliding: both sides of the diagonal together
  int random_blocks = 1;  ///< bigbird
  double density = 0.25;  ///< random
  bool per_head = false;  ///< heads take patterns of their own, where the pattern has variants
};

struct Options : RunOptions {
  PatternOptions pattern;
  int layers = 4;
  int heads = 4;
  int width = 256;
  int mlp_factors = 0;  ///< of the feed-forward weights; 0: dense
  int context = 256;

  std::string data;
  int batch = 4;
  uint64_t seed = 1;

  int64_t steps = 1600;
  double learning_rate = 1e-3;
  int64_t warmup = 100;
  optim::Decay schedule = optim::Decay::cosine;

  int64_t eval_every = 500;

  int64_t generate = 400;
  double temperature = 0.8;
  int top_k = 40;
  std::string prompt = "The ";

  Options() { out = "sparse_transformer_run"; }
};

/** @brief Reads the command line. Options that it leaves out have their defaults or, with --resume,
 *  the values in the checkpoint.
 *  @return false when only help was wanted, which has been printed
 *  @throws UsageError; IoError when the checkpoint cannot be read */
bool parse_options(int argc, char** argv, Options& options);

}  // namespace bs::example
