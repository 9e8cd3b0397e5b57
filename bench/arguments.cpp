#include <bs/bench/arguments.h>
#include <bs/lib/check.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace bs::bench {

namespace {

constexpr const char* common_help =
    "  --device cpu|cuda[:i]   default cpu\n"
    "  --dtype f64|f32|f16|bf16\n"
    "  --seconds S             measure each figure at least so long, default 0.3\n"
    "  --runs N                ... and at least so often, default 20\n"
    "  --json FILE             writes the figures, and what they were measured on\n";

template <class T>
void parse(const char* name, const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  BS_CHECK(error == std::errc() && stop == end, "bench: {} wants a number, not '{}'", name, text);
}
void parse(const char*, const std::string& text, std::string& value) { value = text; }

template <class T>
void parse_list(const char* name, const std::string* text, std::vector<T>& values) {
  if (!text) return;
  values.clear();
  std::stringstream in(*text);
  for (std::string item; std::getline(in, item, ',');) parse(name, item, values.emplace_back());
}

}  // namespace

Arguments::Arguments(int argc, char** argv, std::string_view help)
    : command_(std::filesystem::path(argv[0]).filename()) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::printf("%.*s%s", static_cast<int>(help.size()), help.data(), common_help);
      std::exit(0);
    }
    BS_CHECK(name.starts_with("--"), "bench: '{}' is no option; see --help", name);
    BS_CHECK(i + 1 < argc, "bench: {} needs a value", name);
    options_.emplace_back(name, argv[++i]);
    if (name != "--json") command_ += " " + name + " " + options_.back().second;
  }
}

const std::string* Arguments::take(const char* name) {
  read_.emplace_back(name);
  const std::string* found = nullptr;
  for (const auto& [option, value] : options_)
    if (option == name) found = &value;
  return found;
}

void Arguments::read(const char* name, int64_t& value) {
  if (const std::string* text = take(name)) parse(name, *text, value);
}
void Arguments::read(const char* name, int& value) {
  if (const std::string* text = take(name)) parse(name, *text, value);
}
void Arguments::read(const char* name, double& value) {
  if (const std::string* text = take(name)) parse(name, *text, value);
}
void Arguments::read(const char* name, std::string& value) {
  if (const std::string* text = take(name)) value = *text;
}
void Arguments::read(const char* name, Device& value) {
  if (const std::string* text = take(name)) value = Device::parse(*text);
}
void Arguments::read(const char* name, DType& value) {
  if (const std::string* text = take(name)) value = parse_dtype(*text);
}
void Arguments::read(const char* name, std::vector<int64_t>& values) {
  parse_list(name, take(name), values);
}
void Arguments::read(const char* name, std::vector<int>& values) {
  parse_list(name, take(name), values);
}
void Arguments::read(const char* name, std::vector<double>& values) {
  parse_list(name, take(name), values);
}
void Arguments::read(const char* name, std::vector<std::string>& values) {
  parse_list(name, take(name), values);
}

void Arguments::finish() const {
  for (const auto& [option, value] : options_)
    BS_CHECK(std::find(read_.begin(), read_.end(), option) != read_.end(),
             "bench: unknown option {}; see --help", option);
}

Settings::Settings(Arguments& arguments, DType default_dtype)
    : dtype(default_dtype), command(arguments.command()) {
  arguments.read("--device", device);
  arguments.read("--dtype", dtype);
  arguments.read("--seconds", measure.seconds);
  arguments.read("--runs", measure.runs);
  arguments.read("--json", json);
}

}  // namespace bs::bench
