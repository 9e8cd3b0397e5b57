#pragma once
/** @file The command line. */
#include <bs/examples/support/run_options.h>
#include <bs/nn/data/speech_loader.h>
#include <bs/nn/rnnt.h>

#include <cstdint>
#include <string>

namespace bs::example {

struct Options : RunOptions {
  int64_t encoder = 256;
  int pre_layers = 1;
  int time_stack = 3;
  int post_layers = 1;
  int64_t prediction = 48;
  int prediction_layers = 1;
  int64_t joint = 128;
  double dropout = 0.05;

  int64_t rate = 8000;
  int mels = 40;
  double window = 0.025;
  double hop = 0.010;
  int stack = 3;

  std::string data;
  double max_seconds = 8;
  double held_out = 0.1;
  int64_t batch = 8;
  uint64_t seed = 1;
  double speed = 0.1;
  bool masks = false;

  int64_t steps = 1600;
  std::string optimizer = "adamw";
  double learning_rate = 5e-3;
  int64_t warmup = 100;
  int64_t hold = 800;
  double clip = 10;
  double ema = 0.99;
  int split = 1;
  int64_t eval_every = 400;

  int beam = 0;
  int show = 8;
  std::string stream;

  Options() { out = "rnnt_lstm_run"; }
};

/** @brief The model's extents for an alphabet of so many characters. */
nn::RNNTOptions model_options(const Options& options, int64_t characters);
/** @brief How sound becomes features. */
data::SpeechFeatureOptions feature_options(const Options& options);

/** @brief Reads the command line. Options that it leaves out have their defaults or, with --resume,
 *  the values in the checkpoint.
 *  @return false when only help was wanted, which has been printed
 *  @throws UsageError; IoError when the checkpoint cannot be read */
bool parse_options(int argc, char** argv, Options& options);

}  // namespace bs::example
