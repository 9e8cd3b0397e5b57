#include <bs/examples/sparse_transformer/history.h>
#include <bs/lib/check.h>
#include <bs/lib/json.h>

#include <filesystem>
#include <numbers>

namespace bs::example {
namespace {

double member(const Json& line, const char* name) {
  const Json* value = line.find(name);
  if (value == nullptr) BS_THROW(IoError, "no member '{}'", name);
  return value->number();
}

Json::Object to_json(const StepMetrics& m) {
  return {{"step", m.step},
          {"loss", m.loss},
          {"bits_per_byte", bits(m.loss)},
          {"learning_rate", m.learning_rate},
          {"gradient_norm", m.gradient_norm},
          {"tokens_per_second", m.tokens_per_second}};
}
Json::Object to_json(const EvaluationMetrics& m) {
  return {{"step", m.step},
          {"held_out_loss", m.loss},
          {"held_out_bits_per_byte", bits(m.loss)},
          {"bigram_loss", m.bigram},
          {"bigram_bits_per_byte", bits(m.bigram)}};
}

}  // namespace

double bits(double loss) { return loss / std::numbers::ln2; }

History::History(const std::string& path, int64_t step) : path_(path) {
  if (step > 0 && std::filesystem::exists(path)) read(step);
  file_.open(path, std::ios::trunc);
  for (const StepMetrics& m : steps_) write(Json(to_json(m)).dump());
  for (const EvaluationMetrics& m : evaluations_) write(Json(to_json(m)).dump());
  if (!file_) BS_THROW(IoError, "{}: cannot be written", path);
}

void History::read(int64_t last) {
  std::ifstream in(path_);
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    try {
      const Json line = Json::parse(text);
      const int64_t step = static_cast<int64_t>(member(line, "step"));
      if (step > last) continue;
      if (line.find("loss") != nullptr)
        steps_.push_back({step, member(line, "loss"), member(line, "learning_rate"),
                          member(line, "gradient_norm"), member(line, "tokens_per_second")});
      else
        evaluations_.push_back({step, member(line, "held_out_loss"), member(line, "bigram_loss")});
    } catch (const IoError& error) {
      BS_THROW(IoError, "{}:{}: {}; move the file away to go on without it", path_, number,
               error.what());
    }
  }
}

void History::write(const std::string& line) {
  file_ << line << '\n' << std::flush;
  if (!file_) BS_THROW(IoError, "{}: cannot be written; is the disk full?", path_);
}

void History::add(const StepMetrics& metrics) {
  steps_.push_back(metrics);
  write(Json(to_json(metrics)).dump());
}
void History::add(const EvaluationMetrics& metrics) {
  evaluations_.push_back(metrics);
  write(Json(to_json(metrics)).dump());
}

}  // namespace bs::example
