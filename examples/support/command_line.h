#pragma once
/** @file Options of an example, and how a checkpoint fills in what the command line leaves out. */
#include <bs/examples/support/run_options.h>

#include <CLI/CLI.hpp>

#include <concepts>
#include <string>
#include <string_view>

namespace bs::example {

/// Validators that say nothing in --help: there a type and a default are enough.
inline CLI::Validator silent(CLI::Validator validator) { return validator.description(""); }
/// CLI11 takes an empty word for the number 0, also where a list of numbers has none.
inline CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return text.empty() ? "is empty" : ""; }, "");
}

/** @brief A parser whose options stand in groups: those of "Model", "Pattern", "Features" and
 *  "Data" shape the weights or the order of the data, so a checkpoint fixes them; those of
 *  "Training" and "Sample" are taken over from it where the command line has none; those of "Run"
 *  belong to one run. Every example has --dtype, --out, --resume, --device,
 *  --profile and --smoke. */
class CommandLine {
 public:
  CommandLine(const char* description, const char* program, RunOptions& options);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  template <class T>
  CLI::Option* add(const char* name, T& value, const char* help, const char* group) {
    CLI::Option* option = app.add_option(name, value, help)->capture_default_str()->group(group);
    return std::same_as<T, std::string> ? option : option->check(not_empty());
  }
  CLI::Option* add_flag(const char* name, bool& value, const char* help, const char* group) {
    return app.add_flag(name, value, help)->group(group);
  }
  /** @brief --graph, of examples whose steps can be recorded; see StepGraph. */
  void add_graph();
  /** @brief The options of a group "Run" that all examples have; added last, to be listed last. */
  void add_run();
  /** @brief Reads everything. @return false when only help was wanted, which has been printed
   *  @throws UsageError; IoError when the checkpoint cannot be read */
  bool parse(int argc, char** argv);
  /** @brief Notes what a later --resume takes over; call it when all options have their values. */
  void keep();

  CLI::App app;

 private:
  void take_over(const nn::Checkpoint& checkpoint);
  RunOptions& options_;
  CLI::Option* out_ = nullptr;
  CLI::Option* resume_ = nullptr;
  std::string dtype_ = "auto", device_ = "auto", resume_path_;
};

/// Unlike CLI::Range this refuses NaN too.
template <class T>
CLI::Validator in_range(T low, T high) {
  const auto check = [low, high](const std::string& text) {
    T value{};
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high)
      return std::string();
    return format("{} is not from {} to {}", text, low, high);
  };
  return CLI::Validator(check, "");
}
inline CLI::Validator existing_file() { return silent(CLI::ExistingFile); }

/** @brief @throws UsageError for `--graph on` without a GPU. */
void check_graph(Device device, std::string_view graph);

}  // namespace bs::example
