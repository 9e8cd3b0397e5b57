#include <bs/examples/rnnt_lstm/alignment_chart.h>
#include <bs/examples/rnnt_lstm/run.h>
#include <bs/examples/rnnt_lstm/trainer.h>
#include <bs/examples/support/chart.h>
#include <bs/examples/support/files.h>
#include <bs/examples/support/history.h>
#include <bs/examples/support/program.h>
#include <bs/examples/support/training.h>
#include <bs/lib/progress.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace bs::example {
namespace {

constexpr int64_t train_sample = 64;  // recordings of the training part that are measured

std::string fixed(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}
std::string percent(const decode::Errors& errors) { return fixed(100 * errors.rate(), 1) + " %"; }

/// A training run, from its first line on the screen to its last.
class Run {
 public:
  Run(const Options& options, const Corpus& corpus, const std::string& program);
  int all();

 private:
  void describe() const;
  void train();
  void look(const std::vector<Trainer::Step>& steps, Clock::time_point start, Progress& progress);
  void evaluate(Progress& progress);
  void show_pairs();
  void write_pictures();
  void summarise(double seconds, int64_t steps);

  const Options& options_;
  const Corpus& corpus_;
  std::string program_;
  Trainer trainer_;
  History history_;
  Evaluation last_;
  int64_t skipped_ = 0;       ///< steps whose gradient was not finite
  int64_t skipped_last_ = 0;  ///< of these, the last in a row
  int64_t first_ = 0;         ///< steps that were done before this run
};

Run::Run(const Options& options, const Corpus& corpus, const std::string& program)
    : options_(options),
      corpus_(corpus),
      program_(program),
      trainer_(options, corpus),
      history_(open_history(options.out, trainer_.steps_done(), options.goes_on)) {}

void Run::describe() const {
  const auto& o = options_;
  const LeftOut& left = corpus_.left_out();
  std::printf(
      "speech    %s: %zu recordings to learn (%.1f min), %zu held out (%.1f min), by text\n",
      o.data.c_str(), corpus_.train()->size(), seconds_of(*corpus_.train(), o.rate) / 60,
      corpus_.held_out()->size(), seconds_of(*corpus_.held_out(), o.rate) / 60);
  if (left.all() > 0)
    std::printf(
        "left out  %lld: %lld too long, %lld without words, %lld silent, %lld with more text "
        "than can be said, %lld unreadable\n",
        static_cast<long long>(left.all()), static_cast<long long>(left.too_long),
        static_cast<long long>(left.wordless), static_cast<long long>(left.silent),
        static_cast<long long>(left.too_fast), static_cast<long long>(left.unreadable));
  std::printf("model     %s parameters, %lld characters, frames of %.0f ms, %s on %s\n",
              format_count(static_cast<double>(trainer_.recogniser().parameter_count())).c_str(),
              static_cast<long long>(corpus_.alphabet().size()),
              1e3 * o.hop * o.stack * o.time_stack, to_string(o.dtype).c_str(),
              to_string(o.device).c_str());
  std::printf("guess     \"%s\" for everything: %s of the held-out characters are wrong\n",
              printable(corpus_.guess()).c_str(), percent(corpus_.guess_errors()).c_str());
  std::fflush(stdout);
}

void Run::look(const std::vector<Trainer::Step>& steps, Clock::time_point start,
               Progress& progress) {
  for (const Trainer::Step& step : steps) {
    const double loss = step.loss.item(), norm = step.gradient_norm.item();
    const bool skipped = !std::isfinite(norm);
    skipped_ += skipped;
    skipped_last_ = skipped ? skipped_last_ + 1 : 0;
    const bool at_end = step.number == options_.steps && skipped_last_ == step.number - first_;
    if (skipped_ > 100 || skipped_last_ >= 20 || at_end)
      BS_THROW(Diverged,
               "{} steps had no finite gradient by step {}, the last {} of them in a row: a lower "
               "--lr or a longer --warmup may help",
               skipped_, step.number, skipped_last_);
    // The first look waits; only then is the time of all these steps known.
    const double rate = step.seconds * static_cast<double>(steps.size()) / seconds_since(start);
    history_.add({step.number,
                  {{"loss", loss},
                   {"learning_rate", step.learning_rate},
                   {"gradient_norm", norm},
                   {"audio_seconds_per_second", rate}}});
  }
  progress.update(steps.back().number, "loss " + fixed(history_.steps().back().at("loss"), 2));
}

void Run::evaluate(Progress& progress) {
  trainer_.check();
  last_ = trainer_.evaluate(*corpus_.held_out());
  const double seen = trainer_.evaluate(*corpus_.train(), train_sample).characters.rate();
  history_.add({trainer_.steps_done(),
                {{"held_out_character_error_rate", last_.characters.rate()},
                 {"held_out_word_error_rate", last_.words.rate()},
                 {"train_character_error_rate", seen},
                 {"guess_character_error_rate", corpus_.guess_errors().rate()}}});
  progress.print("step " + std::to_string(trainer_.steps_done()) + ": held out " +
                 percent(last_.characters) + " of the characters wrong, " + percent(last_.words) +
                 " of the words; of the training part " + fixed(100 * seen, 1) + " %");
}

void Run::train() {
  first_ = trainer_.steps_done();
  const double seconds = seconds_of(*corpus_.train(), options_.rate);
  Progress progress("training", options_.steps,
                    {.first = first_,
                     .per_step = seconds / static_cast<double>(trainer_.steps_an_epoch()),
                     .unit = "s of audio"});
  example::train(
      options_, trainer_,
      [&](const auto& steps, Clock::time_point start) { look(steps, start, progress); },
      [&] { evaluate(progress); });
}

void Run::show_pairs() {
  std::printf("\n");
  const size_t count = std::min(static_cast<size_t>(options_.show), last_.transcripts.size());
  for (size_t i = 0; i < count; ++i) {
    // Spread over the held-out part.
    const Transcript& t = last_.transcripts[i * last_.transcripts.size() / count];
    std::printf("said      %s\nheard     %s\n\n", printable(t.reference).c_str(),
                printable(t.hypothesis).c_str());
  }
}

void Run::write_pictures() {
  Curve loss{.name = "loss a text", .colour = "#2171b5", .points = {}, .noisy = true};
  for (const Metrics& m : history_.steps())
    loss.points.push_back({static_cast<double>(m.step), m.at("loss")});
  Curve held{.name = "held out, % of characters wrong", .colour = "#d94801", .points = {}};
  for (const Metrics& m : history_.evaluations())
    held.points.push_back(
        {static_cast<double>(m.step), 100 * m.at("held_out_character_error_rate")});
  write_file(options_.out + "/loss.svg",
             chart("nats, and %", {loss, held},
                   {{"guess, %", "#238b45", 100 * corpus_.guess_errors().rate()}}));
  // The held-out recording whose length is nearest to three seconds.
  const auto& all = *corpus_.held_out();
  const auto chosen = std::ranges::min_element(all, {}, [&](const data::Utterance& u) {
    return std::abs(static_cast<double>(u.samples.size()) / static_cast<double>(options_.rate) - 3);
  });
  const decode::LatticePosterior posterior = trainer_.alignment(*chosen);
  std::vector<std::string> characters;
  const std::string text = corpus_.text(*chosen);
  for (const std::string_view c : data::characters_of(text)) characters.emplace_back(c);
  write_file(
      options_.out + "/alignment.svg",
      alignment_chart(posterior, characters, options_.hop * options_.stack * options_.time_stack));
}

void Run::summarise(double seconds, int64_t steps) {
  const auto& o = options_;
  if (last_.transcripts.empty()) last_ = trainer_.evaluate(*corpus_.held_out());
  const Evaluation seen = trainer_.evaluate(*corpus_.train(), train_sample);
  std::printf("held out  %s of the characters wrong, %s of the words; the guess has %s\n",
              percent(last_.characters).c_str(), percent(last_.words).c_str(),
              percent(corpus_.guess_errors()).c_str());
  std::printf("training  %s of the characters wrong, %s of the words (%zu recordings)\n",
              percent(seen.characters).c_str(), percent(seen.words).c_str(),
              seen.transcripts.size());
  if (skipped_ > 0)
    std::printf("skipped   %lld steps without a finite gradient\n",
                static_cast<long long>(skipped_));
  std::printf("time      %s for %lld steps\n", format_duration(seconds).c_str(),
              static_cast<long long>(steps));
  if (trainer_.replays() > 0)
    std::printf("graphs    %lld steps were one launch\n",
                static_cast<long long>(trainer_.replays()));
  std::printf("files     %s: checkpoint.safetensors metrics.jsonl loss.svg alignment.svg\n",
              o.out.c_str());
  std::printf("listen    %s --resume %s --stream %s\n", program_.c_str(),
              checkpoint_path(o.out).c_str(), corpus_.held_out()->front().name.c_str());
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
  const double seconds = seconds_since(start);
  show_pairs();
  write_pictures();
  summarise(seconds, trainer_.steps_done() - first);
  return interrupted() ? interrupted_status : 0;
}

}  // namespace

int run(const Options& options, const Corpus& corpus, const std::string& program) {
  return Run(options, corpus, program).all();
}

}  // namespace bs::example
