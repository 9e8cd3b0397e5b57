#include <bs/examples/support/command_line.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace bs::example {
namespace {

constexpr const char* fixed_groups[] = {"Model", "Pattern", "Features", "Data"};
constexpr const char* run_group = "Run";

bool is_fixed(const CLI::Option& option) {
  return std::ranges::find(fixed_groups, option.get_group()) != std::end(fixed_groups);
}
bool is_kept(const CLI::Option& option) {
  return is_fixed(option) || option.get_group() == "Training" || option.get_group() == "Sample";
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

}  // namespace

CommandLine::CommandLine(const char* description, const char* program, RunOptions& options)
    : app(description, program), options_(options) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.get_formatter()->column_width(30);
}

void CommandLine::add_run() {
  out_ = add("--out", options_.out, "folder for the checkpoint, metrics and pictures", run_group);
  resume_ =
      app.add_option("--resume", resume_path_, "go on from a checkpoint, by default that in --out")
          ->expected(0, 1)
          ->type_name("[FILE]")
          ->group(run_group);
  add("--device", device_, "auto: the GPU if there is one", run_group);
  add_flag("--smoke", options_.smoke, "test itself in a few seconds", run_group);
  add("--dtype", dtype_, "of the weights; auto: bf16 on a GPU, else f32", "Model")
      ->check(CLI::IsMember({"auto", "f32", "f64", "f16", "bf16"}));
}

/// Fills in what the checkpoint knows and the command line leaves out.
void CommandLine::take_over(const nn::Checkpoint& checkpoint) {
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

bool CommandLine::parse(int argc, char** argv) {
  try {
    app.parse(argc, argv);
    if (resume_->count() > 0) {
      if (resume_path_.empty()) resume_path_ = checkpoint_path(options_.out);
      if (out_->count() == 0) options_.out = folder_of(resume_path_);
      options_.resume = std::make_shared<nn::Checkpoint>(resume_path_);
      take_over(*options_.resume);
    }
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  try {
    options_.device = device_ != "auto"  ? Device::parse(device_)
                      : cuda_available() ? Device::cuda()
                                         : Device::cpu();
    check_usable("--device", options_.device);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  options_.dtype = dtype_ != "auto" ? parse_dtype(dtype_) : options_.device.is_cuda() ? bf16 : f32;
  return true;
}

void CommandLine::keep() {
  for (const CLI::Option* option : app.get_options())
    if (is_kept(*option)) options_.kept[option->get_name()] = text_of(*option);
}

}  // namespace bs::example
