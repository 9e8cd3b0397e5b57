#include <bs/examples/rnnt_lstm/options.h>
#include <bs/examples/support/command_line.h>

namespace bs::example {
namespace {

/// What options are called and how they are written, in the order of --help.
struct Line : CommandLine {
  explicit Line(Options& options);
  void add_model(Options& o);
  void add_data(Options& o);
  void add_training(Options& o);
};

Line::Line(Options& options)
    : CommandLine("Trains an LSTM transducer to write down what people say.", "rnnt_lstm",
                  options) {
  add_model(options);
  add_data(options);
  add_training(options);
  add("--beam", options.beam, "width of the search; 0: greedy", "Sample")->check(in_range(0, 64));
  add("--show", options.show, "pairs of texts to print at the end", "Sample")
      ->check(in_range(0, 1000));
  add("--stream", options.stream, "transcribe this file piece by piece, with --resume", "Run")
      ->check(existing_file());
  add_graph();
  add_run();
}

void Line::add_model(Options& o) {
  const CLI::Validator width = in_range(1, 65536), layers = in_range(1, 100);
  add("--encoder", o.encoder, "cells of an encoder layer", "Model")->check(width);
  add("--pre-layers", o.pre_layers, "encoder layers before frames are stacked", "Model")
      ->check(layers);
  add("--time-stack", o.time_stack, "frames stacked there", "Model")->check(in_range(1, 16));
  add("--post-layers", o.post_layers, "encoder layers after that", "Model")->check(layers);
  add("--prediction", o.prediction, "cells of a prediction layer", "Model")->check(width);
  add("--prediction-layers", o.prediction_layers, "layers of the prediction", "Model")
      ->check(layers);
  add("--joint", o.joint, "width where sound and text meet", "Model")->check(width);
  add("--dropout", o.dropout, "between layers, and in the joint", "Model")
      ->check(in_range(0.0, 0.99));
  add("--rate", o.rate, "samples a second, which sound is brought to", "Features")
      ->check(in_range(4000, 192000));
  add("--mels", o.mels, "filters", "Features")->check(in_range(1, 512));
  const CLI::Validator seconds = in_range(0.0, 10.0);
  add("--window", o.window, "seconds of a frame", "Features")->check(seconds);
  add("--hop", o.hop, "seconds from a frame to the next", "Features")->check(seconds);
  add("--stack", o.stack, "frames the model reads at a time", "Features")->check(in_range(1, 64));
}

void Line::add_data(Options& o) {
  add("--max-seconds", o.max_seconds, "longer recordings are left out", "Data")
      ->check(in_range(0.0, 86400.0));
  add("--held-out", o.held_out, "share of the texts that are never trained on", "Data")
      ->check(in_range(0.0, 0.9));
  add("--batch", o.batch, "recordings a step", "Data")->check(in_range(1, 1 << 20));
  add("--seed", o.seed, "of weights and data order", "Data");
  add("--speed", o.speed, "speeds differ by up to this share", "Data")->check(in_range(0.0, 0.5));
  add_flag("--masks", o.masks, "hide parts of the sound (SpecAugment)", "Data");
}

void Line::add_training(Options& o) {
  const CLI::Validator steps = in_range(int64_t{0}, int64_t{1} << 40);
  add("--data", o.data, "list of recordings: JSON lines of path and text", "Training")
      ->check(existing_file());
  add("--steps", o.steps, "optimiser steps in all", "Training")->check(steps);
  add("--optimizer", o.optimizer, "adamw or lamb", "Training")
      ->check(CLI::IsMember({"adamw", "lamb"}));
  add("--lr", o.learning_rate, "highest learning rate", "Training");
  add("--warmup", o.warmup, "steps up to the highest rate", "Training")->check(steps);
  add("--hold", o.hold, "steps at it, before it falls", "Training")->check(steps);
  add("--clip", o.clip, "largest norm of the gradient", "Training");
  add("--ema", o.ema, "decay of the average of the weights", "Training")
      ->check(in_range(0.0, 0.99999));
  add("--split", o.split, "parts of a batch whose logits are in memory at a time", "Training")
      ->check(in_range(1, 1 << 20));
  add("--eval-every", o.eval_every, "steps between evaluations and checkpoints", "Training")
      ->check(in_range(int64_t{1}, int64_t{1} << 40));
}

void check(const Options& o) {
  if (!(o.learning_rate > 0)) BS_THROW(UsageError, "--lr {} is not positive", o.learning_rate);
  if (!(o.clip > 0)) BS_THROW(UsageError, "--clip {} is not positive", o.clip);
  if (!(o.window > 0 && o.hop > 0))
    BS_THROW(UsageError, "--window {} and --hop {} are not both positive", o.window, o.hop);
  if (!o.stream.empty() && !o.resume)
    throw UsageError("--stream FILE needs --resume: a checkpoint that has learnt");
  check_graph(o.device, o.graph);
  if (o.data.empty() && !o.smoke && o.stream.empty())
    throw UsageError("--data FILE is needed: a list of recordings");
}

}  // namespace

nn::RNNTOptions model_options(const Options& o, int64_t characters) {
  return {.features = int64_t{o.mels} * o.stack,
          .encoder_hidden = o.encoder,
          .pre_layers = o.pre_layers,
          .stack = o.time_stack,
          .post_layers = o.post_layers,
          .prediction_hidden = o.prediction,
          .prediction_layers = o.prediction_layers,
          .joint = o.joint,
          .classes = characters + 1,
          .encoder_dropout = o.dropout,
          .prediction_dropout = o.dropout,
          .joint_dropout = o.dropout,
          .lstm_scale = 1,
          .dtype = o.dtype,
          .device = o.device};
}

data::SpeechFeatureOptions feature_options(const Options& o) {
  return {.mel = {.rate = o.rate,
                  .window = o.window,
                  .hop = o.hop,
                  .mels = o.mels,
                  .low = 60,
                  .dither = 1e-4,
                  .floor = 1e-6},
          .stack = o.stack,
          .stride = o.stack};
}

bool parse_options(int argc, char** argv, Options& options) {
  Line line(options);
  if (!line.parse(argc, argv)) return false;
  check(options);
  line.keep();
  return true;
}

}  // namespace bs::example
