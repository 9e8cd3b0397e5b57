#include <bs/examples/image_classifier/fonts.h>
#include <bs/examples/image_classifier/pictures.h>
#include <bs/examples/image_classifier/run.h>
#include <bs/examples/image_classifier/trainer.h>
#include <bs/examples/support/chart.h>
#include <bs/examples/support/files.h>
#include <bs/examples/support/history.h>
#include <bs/examples/support/training.h>
#include <bs/lib/progress.h>

#include <cmath>
#include <cstdio>

namespace bs::example {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

/// A training run, from its first line on the screen to its last.
class Run {
 public:
  Run(const Options& options, const std::string& program);
  int all();

 private:
  void describe() const;
  void train();
  void look(const std::vector<Trainer::Step>& steps, Clock::time_point start, Progress& progress);
  void evaluate(Progress& progress);
  void write_pictures() const;
  void summarise(double seconds, int64_t steps) const;

  const Options& options_;
  std::string program_;
  ImageData data_;
  Trainer trainer_;
  History history_;
  double linear_;
  Score score_;
};

Run::Run(const Options& options, const std::string& program)
    : options_(options),
      program_(program),
      data_(read_fonts(options)),
      trainer_(options, data_),
      history_(open_history(options.out, trainer_.steps_done(), options.goes_on)),
      linear_(linear_score(data_, options.seed).accuracy) {}

void Run::describe() const {
  const auto& o = options_;
  std::printf("images    %s: %lld to learn, %lld of other fonts held out, %lld x %lld pixels\n",
              o.data.c_str(), static_cast<long long>(data_.train.count()),
              static_cast<long long>(data_.held_out.count()), static_cast<long long>(o.size),
              static_cast<long long>(o.size));
  std::printf("model     %s of %d layers, %s parameters, %s on %s\n", o.model.c_str(), o.depth,
              format_count(static_cast<double>(trainer_.model().parameter_count())).c_str(),
              to_string(o.dtype).c_str(), to_string(o.device).c_str());
  std::printf("linear    %s of the held-out images right\n", percent(linear_).c_str());
  std::fflush(stdout);
}

void Run::look(const std::vector<Trainer::Step>& steps, Clock::time_point start,
               Progress& progress) {
  for (const Trainer::Step& step : steps) {
    const double loss = step.loss.item(), norm = step.gradient_norm.item();
    check_finite("loss", loss, step.number);
    check_finite("norm of the gradient", norm, step.number);
    // The first look waits; only then is the time of all these steps known.
    const double images = static_cast<double>(steps.size()) * static_cast<double>(options_.batch);
    history_.add({step.number,
                  {{"loss", loss},
                   {"learning_rate", step.learning_rate},
                   {"density", step.density},
                   {"gradient_norm", norm},
                   {"images_per_second", images / seconds_since(start)}}});
  }
  char note[32];
  std::snprintf(note, sizeof note, "loss %.3f", history_.steps().back().at("loss"));
  progress.update(steps.back().number, note);
}

void Run::evaluate(Progress& progress) {
  score_ = trainer_.held_out();
  check_finite("held-out loss", score_.loss, trainer_.steps_done());
  history_.add({trainer_.steps_done(),
                {{"held_out_accuracy", score_.accuracy},
                 {"held_out_loss", score_.loss},
                 {"density", trainer_.density()},
                 {"linear_accuracy", linear_}}});
  progress.print(format("step {}: {} of the held-out images right, {} of the blocks left",
                        trainer_.steps_done(), percent(score_.accuracy),
                        percent(trainer_.density())));
}

void Run::train() {
  Progress progress("training", options_.steps,
                    {.first = trainer_.steps_done(),
                     .per_step = static_cast<double>(options_.batch),
                     .unit = "image"});
  example::train(
      options_, trainer_,
      [&](const auto& steps, Clock::time_point start) { look(steps, start, progress); },
      [&] { evaluate(progress); });
}

void Run::write_pictures() const {
  Curve right{.name = "network", .colour = "#d94801", .points = {}};
  Curve by_density{.name = "network", .colour = "#d94801", .points = {}};
  for (const Metrics& m : history_.evaluations()) {
    const double accuracy = 100 * m.at("held_out_accuracy"), density = 100 * m.at("density");
    right.points.push_back({static_cast<double>(m.step), accuracy});
    // The last evaluation of a density counts.
    if (!by_density.points.empty() && std::abs(by_density.points.back().step - density) < 1)
      by_density.points.pop_back();
    by_density.points.push_back({density, accuracy});
  }
  const std::vector<Level> linear = {{"linear model", "#238b45", 100 * linear_}};
  write_file(options_.out + "/accuracy.svg", chart("held-out images right, %", {right}, linear));
  write_file(options_.out + "/density.svg", chart("held-out images right, %", {by_density}, linear,
                                                  "blocks of the weights that are left, %"));
  write_file(options_.out + "/filters.pgm", filter_picture(trainer_.model().conv1.weight.data()));
  if (!score_.confusion.empty())
    write_file(options_.out + "/confusion.pgm",
               confusion_picture(score_.confusion, data_.classes()));
}

void Run::summarise(double seconds, int64_t steps) const {
  for (size_t i = 0; i < history_.evaluations().size(); ++i) {
    const Metrics& m = history_.evaluations()[i];
    const bool is_last = i + 1 == history_.evaluations().size();
    if (!is_last && history_.evaluations()[i + 1].at("density") == m.at("density")) continue;
    std::printf("held out  %s right with %s of the blocks; the linear model has %s\n",
                percent(m.at("held_out_accuracy")).c_str(), percent(m.at("density")).c_str(),
                percent(m.at("linear_accuracy")).c_str());
  }
  if (!score_.confusion.empty())
    std::printf("confused  %s\n", worst_pairs(score_.confusion, data_.names, 5).c_str());
  std::printf("time      %s for %lld steps\n", format_duration(seconds).c_str(),
              static_cast<long long>(steps));
  std::printf(
      "files     %s: checkpoint.safetensors metrics.jsonl accuracy.svg density.svg "
      "confusion.pgm filters.pgm\n",
      options_.out.c_str());
}

int Run::all() {
  describe();
  const auto start = Clock::now();
  const int64_t first = trainer_.steps_done();
  train();
  if (trainer_.steps_done() < options_.steps) {
    write_pictures();
    return stopped(options_, trainer_, program_);
  }
  write_pictures();
  summarise(seconds_since(start), trainer_.steps_done() - first);
  return interrupted() ? interrupted_status : 0;
}

}  // namespace

int run(const Options& options, const std::string& program) { return Run(options, program).all(); }

}  // namespace bs::example
