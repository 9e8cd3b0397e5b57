#include <bs/examples/support/history.h>
#include <bs/lib/check.h>
#include <bs/lib/json.h>

#include <algorithm>
#include <filesystem>

namespace bs::example {

double Metrics::at(const std::string& name) const {
  const auto found =
      std::ranges::find_if(values, [&](const auto& value) { return value.first == name; });
  if (found == values.end()) BS_THROW(IoError, "no member '{}'", name);
  return found->second;
}

namespace {

Metrics metrics_of(const Json& line) {
  Metrics metrics;
  for (const auto& [name, value] : line.object()) {
    if (name == "step") {
      metrics.step = value.integer();
    } else if (!value.is_null()) {
      metrics.values.emplace_back(name, value.number());
    }
  }
  if (line.find("step") == nullptr) BS_THROW(IoError, "no member 'step'");
  return metrics;
}

bool is_step(const Metrics& metrics) {
  return std::ranges::any_of(metrics.values, [](const auto& v) { return v.first == "loss"; });
}

}  // namespace

History::History(const std::string& path, int64_t step) : path_(path) {
  if (step > 0 && std::filesystem::exists(path)) read(step);
  file_.open(path, std::ios::trunc);
  for (const auto* list : {&steps_, &evaluations_})
    for (const Metrics& metrics : *list) write(metrics);
  if (!file_) BS_THROW(IoError, "{}: cannot be written", path);
}

void History::read(int64_t last) {
  std::ifstream in(path_);
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    try {
      Metrics metrics = metrics_of(Json::parse(text));
      if (metrics.step <= last) remember(std::move(metrics));
    } catch (const IoError& error) {
      BS_THROW(IoError, "{}:{}: {}; move the file away to go on without it", path_, number,
               error.what());
    }
  }
}

void History::remember(Metrics metrics) {
  (is_step(metrics) ? steps_ : evaluations_).push_back(std::move(metrics));
}

void History::write(const Metrics& metrics) {
  Json::Object line{{"step", metrics.step}};
  for (const auto& [name, value] : metrics.values) line.emplace_back(name, value);
  file_ << Json(std::move(line)).dump() << '\n' << std::flush;
  if (!file_) BS_THROW(IoError, "{}: cannot be written; is the disk full?", path_);
}

void History::add(const Metrics& metrics) {
  remember(metrics);
  write(metrics);
}

History open_history(const std::string& folder, int64_t step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) BS_THROW(IoError, "--out {}: {}", folder, error.message());
  return {folder + "/metrics.jsonl", step};
}

}  // namespace bs::example
