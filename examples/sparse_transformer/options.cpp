#include <bs/examples/sparse_transformer/options.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace bs::example {
namespace {

/// Options of these groups shape the weights or the order of the data: a checkpoint fixes them.
constexpr const char* fixed_groups[] = {"Model", "Pattern", "Data"};
/// Options of this group are of one run only.
constexpr const char* run_group = "Run";

bool is_fixed(const CLI::Option& option) {
  return std::ranges::find(fixed_groups, option.get_group()) != std::end(fixed_groups);
}
bool is_kept(const CLI::Option& option) {
  return is_fixed(option) || option.get_group() == "Training" || option.get_group() == "Sample";
}

/// Validators that say nothing in --help: there a type and a default are enough.
CLI::Validator silent(CLI::Validator validator) { return validator.description(""); }
template <class T>
CLI::Validator in_range(T low, T high) {
  return silent(CLI::Range(low, high));
}
CLI::Validator existing_file() { return silent(CLI::ExistingFile); }

/// What options are called and how they are written, in the order of --help.
struct CommandLine {
  explicit CommandLine(Options& options);
  void add_model(Options& o);
  void add_pattern(PatternOptions& p);
  void add_training(Options& o);
  void add_run(Options& o);

  template <class T>
  CLI::Option* add(const char* name, T& value, const char* help, const char* group) {
    return app.add_option(name, value, help)->capture_default_str()->group(group);
  }

  CLI::App app{"Trains a block-sparse transformer on the bytes of a text, and writes like it.",
               "sparse_transformer"};
  CLI::Option* out = nullptr;
  CLI::Option* resume = nullptr;
  std::string dtype = "auto";
  std::string device = "auto";
  std::string schedule = "cosine";
  std::string resume_path;
};

CommandLine::CommandLine(Options& options) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.get_formatter()->column_width(30);
  add_model(options);
  add_pattern(options.pattern);
  add_training(options);
  add_run(options);
}

void CommandLine::add_model(Options& o) {
  add("--layers", o.layers, "transformer blocks", "Model")->check(in_range(1, 1000));
  add("--heads", o.heads, "attention heads", "Model")->check(in_range(1, 1024));
  add("--width", o.width, "width, a multiple of 8 x heads", "Model")->check(in_range(8, 65536));
  add("--context", o.context, "bytes seen, a multiple of the block", "Model")
      ->check(in_range(8, 1 << 20));
  add("--dtype", dtype, "of the weights; auto: bf16 on a GPU, else f32", "Model")
      ->check(CLI::IsMember({"auto", "f32", "f64", "f16", "bf16"}));
}

void CommandLine::add_pattern(PatternOptions& p) {
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
  app.add_flag("--per-head", p.per_head, "another variant of the pattern for each head")
      ->group(group);
}

void CommandLine::add_training(Options& o) {
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

void CommandLine::add_run(Options& o) {
  add("--generate", o.generate, "bytes to write at the end", "Sample")
      ->check(in_range(int64_t{0}, int64_t{1} << 30));
  add("--temperature", o.temperature, "0: always the likeliest byte", "Sample")
      ->check(in_range(0.0, 100.0));
  add("--top-k", o.top_k, "choose among the k likeliest; 0: all", "Sample")
      ->check(in_range(0, 256));
  add("--prompt", o.prompt, "how the sample begins", "Sample");
  out = add("--out", o.out, "folder for the checkpoint, metrics and pictures", run_group);
  resume =
      app.add_option("--resume", resume_path, "go on from a checkpoint, by default that in --out")
          ->expected(0, 1)
          ->type_name("[FILE]")
          ->group(run_group);
  add("--device", device, "auto: the GPU if there is one", run_group);
  app.add_flag("--smoke", o.smoke, "test itself in a few seconds")->group(run_group);
}

std::string folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// An option as a word for the command line, given or not.
std::string text_of(const CLI::Option& option) {
  const bool flag = option.get_expected_max() == 0;
  if (!flag) return option.as<std::string>();
  return option.count() > 0 && option.as<bool>() ? "true" : "false";
}

/// Fills in what the checkpoint knows and the command line leaves out.
void take_over(CLI::App& app, const nn::Checkpoint& checkpoint) {
  for (const auto& [name, text] : checkpoint.metadata()) {
    CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) continue;
    if (option->count() == 0) {
      option->add_result(text);
      option->run_callback();
    } else if (is_fixed(*option) && text_of(*option) != text) {
      BS_THROW(UsageError, "{} {}: the checkpoint was made with {}; leave the option out", name,
               text_of(*option), text);
    }
  }
}

void check(const Options& o) {
  if (o.width % (8 * o.heads) != 0)
    BS_THROW(UsageError, "--width {} is not a multiple of 8 x --heads {}", o.width, o.heads);
  if (o.context % o.pattern.block != 0)
    BS_THROW(UsageError, "--context {} is not a multiple of --block {}", o.context,
             o.pattern.block);
  if (!(o.learning_rate > 0)) BS_THROW(UsageError, "--lr {} is not positive", o.learning_rate);
  if (o.data.empty() && !o.smoke) throw UsageError("--data FILE is needed: the text to learn");
}

}  // namespace

std::string checkpoint_path(const std::string& out) { return out + "/checkpoint.safetensors"; }

bool parse_options(int argc, char** argv, Options& options) {
  CommandLine line(options);
  try {
    line.app.parse(argc, argv);
    if (line.resume->count() > 0) {
      if (line.resume_path.empty()) line.resume_path = checkpoint_path(options.out);
      if (line.out->count() == 0) options.out = folder_of(line.resume_path);
      options.resume = std::make_shared<nn::Checkpoint>(line.resume_path);
      take_over(line.app, *options.resume);
    }
  } catch (const CLI::CallForHelp&) {
    std::fputs(line.app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  try {
    options.device = line.device != "auto" ? Device::parse(line.device)
                     : cuda_available()    ? Device::cuda()
                                           : Device::cpu();
    check_usable("--device", options.device);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  options.dtype = line.dtype != "auto"       ? parse_dtype(line.dtype)
                  : options.device.is_cuda() ? bf16
                                             : f32;
  options.schedule = optim::parse_decay(line.schedule);
  check(options);
  for (const CLI::Option* option : line.app.get_options())
    if (is_kept(*option)) options.kept[option->get_name()] = text_of(*option);
  return true;
}

}  // namespace bs::example
