#include <bs/examples/sparse_transformer/run.h>
#include <bs/examples/sparse_transformer/trainer.h>
#include <bs/examples/support/chart.h>
#include <bs/examples/support/files.h>
#include <bs/examples/support/history.h>
#include <bs/examples/support/program.h>
#include <bs/examples/support/training.h>
#include <bs/lib/progress.h>

#include <cmath>
#include <cstdio>
#include <numbers>

namespace bs::example {
namespace {

std::string fixed(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}
/// Losses are natural: nats a byte.
double bits(double loss) { return loss / std::numbers::ln2; }

std::string loss_text(double loss) {
  return fixed(loss, 3) + " (" + fixed(bits(loss), 3) + " bits/byte)";
}

std::string loss_chart(const History& history) {
  Curve training{.name = "training", .colour = "#2171b5", .points = {}, .noisy = true};
  Curve held_out{.name = "held out", .colour = "#d94801", .points = {}};
  for (const Metrics& m : history.steps())
    training.points.push_back({static_cast<double>(m.step), m.at("bits_per_byte")});
  std::vector<Level> levels;
  for (const Metrics& m : history.evaluations()) {
    held_out.points.push_back({static_cast<double>(m.step), m.at("held_out_bits_per_byte")});
    levels = {{"bigram", "#238b45", m.at("bigram_bits_per_byte")}};
  }
  return chart("bits per byte", {training, held_out}, levels);
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
  void write_sample();
  void write_pictures() const;
  void summarise(double seconds, int64_t steps) const;

  const Options& options_;
  std::string program_;
  Text text_;
  Trainer trainer_;
  History history_;
};

Run::Run(const Options& options, const std::string& program)
    : options_(options),
      program_(program),
      text_(data::TextDataset::read(options.data), options),
      trainer_(options, text_),
      history_(open_history(options.out, trainer_.steps_done(), options.goes_on)) {}

void Run::describe() const {
  const auto& o = options_;
  std::printf("text      %s: %s bytes to learn, %s held out\n", o.data.c_str(),
              format_count(static_cast<double>(text_.train().size())).c_str(),
              format_count(static_cast<double>(text_.held_out().size())).c_str());
  const LayoutPtr layout = trainer_.model().blocks.front()->attention.layout(o.context);
  std::printf("model     %s parameters, %d layers of width %d, %d heads, context %d, %s on %s\n",
              format_count(static_cast<double>(trainer_.model().parameter_count())).c_str(),
              o.layers, o.width, o.heads, o.context, to_string(o.dtype).c_str(),
              to_string(o.device).c_str());
  std::printf("attention %s, %.0f %% of the blocks of %d x %d kept\n", o.pattern.name.c_str(),
              100 * layout->density(), layout->block(), layout->block());
  std::printf("bigram    held-out loss %s\n", loss_text(text_.bigram_loss()).c_str());
  std::fflush(stdout);
}

void Run::look(const std::vector<Trainer::Step>& steps, Clock::time_point start,
               Progress& progress) {
  const double tokens = static_cast<double>(options_.batch) * options_.context;
  for (const Trainer::Step& step : steps) {
    const double loss = step.loss.item(), norm = step.gradient_norm.item();
    check_finite("loss", loss, step.number);
    check_finite("norm of the gradient", norm, step.number);
    // The first look waits; only then is the time of all these steps known.
    const double rate = static_cast<double>(steps.size()) * tokens / seconds_since(start);
    history_.add({step.number,
                  {{"loss", loss},
                   {"bits_per_byte", bits(loss)},
                   {"learning_rate", step.learning_rate},
                   {"gradient_norm", norm},
                   {"tokens_per_second", rate}}});
  }
  progress.update(steps.back().number, "loss " + loss_text(history_.steps().back().at("loss")));
}

void Run::evaluate(Progress& progress) {
  const double loss = trainer_.held_out_loss();
  check_finite("held-out loss", loss, trainer_.steps_done());
  const double bigram = text_.bigram_loss();
  history_.add({trainer_.steps_done(),
                {{"held_out_loss", loss},
                 {"held_out_bits_per_byte", bits(loss)},
                 {"bigram_loss", bigram},
                 {"bigram_bits_per_byte", bits(bigram)}}});
  progress.print("step " + std::to_string(trainer_.steps_done()) + ": held-out loss " +
                 loss_text(loss));
}

void Run::train() {
  const auto first = trainer_.steps_done();
  Progress progress("training", options_.steps,
                    {.first = first,
                     .per_step = static_cast<double>(options_.batch) * options_.context,
                     .unit = "token"});
  example::train(
      options_, trainer_,
      [&](const auto& steps, Clock::time_point start) { look(steps, start, progress); },
      [&] { evaluate(progress); });
}

void Run::write_sample() {
  if (options_.generate == 0) return;
  struct Interrupted {};
  std::string sample = options_.prompt;
  std::printf("\n%s", printable(sample).c_str());
  try {
    trainer_.sample([&](char byte) {
      if (interrupted()) throw Interrupted();
      sample.push_back(byte);
      std::fputs(printable(std::string(1, byte)).c_str(), stdout);
      std::fflush(stdout);
    });
  } catch (const Interrupted&) {
  }
  std::printf("\n\n");
  write_file(options_.out + "/sample.txt", sample + "\n");
}

void Run::write_pictures() const {
  write_file(options_.out + "/loss.svg", loss_chart(history_));
  const nn::SparseAttention& attention = trainer_.model().blocks.front()->attention;
  write_file(options_.out + "/pattern.svg", to_svg(*attention.layout(options_.context)));
}

void Run::summarise(double seconds, int64_t steps) const {
  const auto& o = options_;
  if (!history_.evaluations().empty()) {
    const Metrics& last = history_.evaluations().back();
    std::printf("held out  %.3f bits/byte after %lld steps; the bigram model has %.3f\n",
                last.at("held_out_bits_per_byte"), static_cast<long long>(last.step),
                last.at("bigram_bits_per_byte"));
  }
  std::printf("time      %s for %lld steps\n", format_duration(seconds).c_str(),
              static_cast<long long>(steps));
  std::printf("files     %s: checkpoint.safetensors metrics.jsonl loss.svg pattern.svg%s\n",
              o.out.c_str(), o.generate > 0 ? " sample.txt" : "");
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
  write_sample();
  write_pictures();
  summarise(seconds_since(start), trainer_.steps_done() - first);
  return interrupted() ? interrupted_status : 0;
}

}  // namespace

int run(const Options& options, const std::string& program) { return Run(options, program).all(); }

}  // namespace bs::example
