#include <bs/examples/support/command_line.h>
#include <bs/lib/json.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

namespace bs::example {
namespace {

constexpr const char* shape_groups[] = {"Model", "Pattern", "Features"};
constexpr const char* run_group = "Run";

bool shapes_model(const CLI::Option& option) {
  return std::ranges::find(shape_groups, option.get_group()) != std::end(shape_groups);
}
bool is_fixed(const CLI::Option& option) {
  return shapes_model(option) || option.get_group() == "Data";
}
bool is_kept(const CLI::Option& option) {
  return is_fixed(option) || option.get_group() == "Training" || option.get_group() == "Sample";
}

constexpr std::string_view escape = "bytes:";

/// A text that need not be UTF-8, as paths and prompts need not, as one that is.
std::string escaped(const std::string& text) {
  if (is_utf8(text) && !text.starts_with(escape)) return text;
  std::string out(escape);
  for (const char c : text)
    for (const int shift : {4, 0}) out += "0123456789abcdef"[static_cast<uint8_t>(c) >> shift & 15];
  return out;
}

std::string unescaped(const std::string& text) {
  if (!text.starts_with(escape)) return text;
  std::string out;
  for (size_t i = escape.size(); i + 2 <= text.size(); i += 2) {
    uint8_t byte = 0;
    std::from_chars(&text[i], &text[i] + 2, byte, 16);
    out += static_cast<char>(byte);
  }
  return out;
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

void CommandLine::add_graph() {
  add("--graph", options_.graph, "a step on a GPU as one launch", run_group)
      ->check(CLI::IsMember({"auto", "on", "off"}));
}

void CommandLine::add_run() {
  out_ = add("--out", options_.out, "folder for the checkpoint, metrics and pictures", run_group);
  resume_ =
      app.add_option("--resume", resume_path_, "go on from a checkpoint, by default that in --out")
          ->expected(0, 1)
          ->type_name("[FILE]")
          ->group(run_group);
  add("--device", device_, "auto: the GPU if there is one", run_group);
  add("--profile", options_.profile, "file for a trace of ten steps; prints where time goes",
      run_group);
  add_flag("--smoke", options_.smoke, "test itself in a few seconds", run_group);
  add("--dtype", dtype_, "of the weights; auto: bf16 on a GPU, else f32", "Model")
      ->check(CLI::IsMember({"auto", "f32", "f64", "f16", "bf16"}));
}

/// Fills in what the checkpoint knows and the command line leaves out. A checkpoint may come from
/// anybody: what belongs to one run alone, such as where files go, is not its to say.
void CommandLine::take_over(const nn::Checkpoint& checkpoint) {
  for (const auto& [name, kept] : checkpoint.metadata()) {
    CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr || !is_kept(*option)) continue;
    const std::string text = unescaped(kept);
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
      std::error_code ignored;  // of a folder that is not there yet
      options_.goes_on =
          std::filesystem::equivalent(checkpoint_path(options_.out), resume_path_, ignored);
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
    if (is_kept(*option)) options_.kept[option->get_name()] = escaped(text_of(*option));
  options_.kept["--dtype"] = to_string(options_.dtype);  // `auto` may mean another on resuming
  options_.shape.clear();
  for (const CLI::Option* option : app.get_options())
    if (shapes_model(*option))
      options_.shape += " " + option->get_name() + " " + options_.kept[option->get_name()];
}

void check_graph(Device device, std::string_view graph) {
  if (graph == "on" && !device.is_cuda())
    BS_THROW(UsageError, "--graph on: there are no graphs on {}", device);
}

}  // namespace bs::example
