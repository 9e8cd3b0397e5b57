#pragma once
/** @file The steps of a training run, and of a run that tests itself. A Trainer has steps_done(),
 *  step(), which returns a Trainer::Step, save(path), and check(), which throws Diverged where the
 *  weights give no finite loss. */
#include <bs/examples/support/files.h>
#include <bs/examples/support/interrupt.h>
#include <bs/examples/support/run_options.h>
#include <bs/examples/support/step_profile.h>
#include <bs/examples/support/temporary_folder.h>
#include <bs/nn/checkpoint.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace bs::example {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/** @brief Trains until options.steps or Ctrl-C. Calls evaluate() every options.eval_every steps and
 *  after the last, then saves; evaluate() throws Diverged where the weights are not to be kept.
 * What Ctrl-C stops is checked and saved too.
 *  @param[in] look look(steps, start), called with the steps taken since `start`: their numbers are
 *  on the device, and looking at them waits for it, so it runs ahead of that by some steps */
template <class Options, class Trainer, class Look, class Evaluate>
void train(const Options& options, Trainer& trainer, const Look& look, const Evaluate& evaluate) {
  const size_t most = options.device.is_cuda() ? 16 : 1;
  StepProfile profile(options.profile);
  std::vector<typename Trainer::Step> steps;
  Clock::time_point start = Clock::now();
  const auto look_at_steps = [&] {
    if (steps.empty()) return;
    look(steps, start);
    start = Clock::now();
    steps.clear();
  };
  while (trainer.steps_done() < options.steps && !interrupted()) {
    profile.next();
    {
      const TraceRange range("step");
      steps.push_back(trainer.step());
    }
    const bool last = trainer.steps_done() == options.steps;
    const bool measure = last || trainer.steps_done() % options.eval_every == 0;
    if (steps.size() >= most || measure) look_at_steps();
    if (!measure) continue;
    // In this order, so that a checkpoint never lacks the evaluation of its step.
    evaluate();
    trainer.save(checkpoint_path(options.out));
    start = Clock::now();
  }
  look_at_steps();
  profile.finish();
  if (trainer.steps_done() >= options.steps) return;
  trainer.check();
  trainer.save(checkpoint_path(options.out));
}

/** @brief Says how to go on with a run that was stopped. @return what main returns then */
template <class Options, class Trainer>
int stopped(const Options& options, const Trainer& trainer, const std::string& program) {
  std::printf("stopped after step %lld of %lld; to go on: %s --resume %s\n",
              static_cast<long long>(trainer.steps_done()), static_cast<long long>(options.steps),
              program.c_str(), checkpoint_path(options.out).c_str());
  return interrupted_status;
}

/** @brief Trains to options.steps, and once more from a checkpoint of half the steps.
 *  @throws Error where that ends in other weights or another state */
template <class Trainer, class Options, class Data>
std::unique_ptr<Trainer> train_and_resume(const Options& options, const Data& data) {
  const auto train = [](Trainer& trainer, int64_t until) {
    while (trainer.steps_done() < until) trainer.step();
  };
  const TemporaryFolder folder;
  auto whole = std::make_unique<Trainer>(options, data);
  train(*whole, options.steps / 2);
  whole->save(folder / "half");
  train(*whole, options.steps);
  whole->save(folder / "whole");

  Options resumed = options;
  resumed.resume = std::make_shared<nn::Checkpoint>(folder / "half");
  Trainer rest(resumed, data);
  train(rest, options.steps);
  rest.save(folder / "resumed");
  // On a GPU some sums have no fixed order.
  BS_CHECK(options.device.is_cuda() || content(folder / "whole") == content(folder / "resumed"),
           "smoke: the resumed run ended in other bytes than the uninterrupted one");
  std::printf("resumed run: the same checkpoint\n");
  return whole;
}

}  // namespace bs::example
