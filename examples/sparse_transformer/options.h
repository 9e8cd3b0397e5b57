#pragma once
/** @file The command line. */
#include <bs/lib/device.h>
#include <bs/lib/dtype.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/optim/lr_schedule.h>

#include <cstdint>
#include <map>
#include <memory>
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

struct Options {
  PatternOptions pattern;
  int layers = 4;
  int heads = 4;
  int width = 256;
  int context = 256;

  std::string data;
  int batch = 4;
  uint64_t seed = 1;
  DType dtype = f32;

  int64_t steps = 2000;
  double learning_rate = 1e-3;
  int64_t warmup = 100;
  optim::Decay schedule = optim::Decay::cosine;

  Device device;
  std::string out = "sparse_transformer_run";
  std::shared_ptr<const nn::Checkpoint> resume;  ///< what to go on from; null: start afresh
  int64_t eval_every = 500;
  bool smoke = false;

  int64_t generate = 400;
  double temperature = 0.8;
  int top_k = 40;
  std::string prompt = "The ";

  /** Name and text of every option that a later --resume takes over. */
  std::map<std::string, std::string> kept;
};

/** @brief The command line is wrong; the text is one line for the user. */
class UsageError : public Error {
 public:
  using Error::Error;
};

/** @brief Reads the command line. Options that it leaves out have their defaults or, with --resume,
 *  the values in the checkpoint.
 *  @return false when only help was wanted, which has been printed
 *  @throws UsageError; IoError when the checkpoint cannot be read */
bool parse_options(int argc, char** argv, Options& options);

/** @brief Where a run in this folder keeps its state. */
std::string checkpoint_path(const std::string& out);

}  // namespace bs::example
