#pragma once
/** @file Schedules as factors of a rate, for Optimizer::scale_learning_rates: each group keeps its
 *  own rate beside the others. */
#include <cstdint>
#include <limits>
#include <vector>

namespace bs::optim {

/** @brief factor^(step / every), rounded down: the rate falls every so many steps. With `every` 1
 *  the decay is exponential. */
struct StepDecay {
  int64_t every = 1;
  double factor = 0.1;

  /** @throws Error for a negative step, or options that cannot be. */
  double at(int64_t step) const;
};

/** @brief factor^n, where n of the steps listed are reached: the rate falls at each of them, and
 *  twice at one that is listed twice. */
struct MultiStepDecay {
  std::vector<int64_t> steps;  ///< ascending
  double factor = 0.1;

  /** @throws Error for a negative step, or options that cannot be. */
  double at(int64_t step) const;
};

/** @brief Up from `first` to 1 over the share `rise` of all steps, then down to `last`. Both ways
 *  are halves of a cosine (Smith, Topin, arXiv:1708.07120). `last` is reached at step `steps`: that
 *  is PyTorch's OneCycleLR with total_steps = steps + 1. */
struct OneCycle {
  int64_t steps = 1;
  double rise = 0.3;
  double first = 1.0 / 25;
  double last = 1e-4 / 25;

  /** @throws Error for a negative step, or options that cannot be. */
  double at(int64_t step) const;
};

/** @brief lowest + (1 - lowest) (1 + cos(pi t / T)) / 2, t steps after the last restart. The rate
 *  falls for T steps and starts anew, first for `first` steps, then each time `growth` times as
 * long (Loshchilov, Hutter, arXiv:1608.03983). */
struct WarmRestarts {
  int64_t first = 1;
  int64_t growth = 1;
  double lowest = 0;  ///< share of the rate that it falls to

  /** @throws Error for a negative step, or options that cannot be. */
  double at(int64_t step) const;
};

/** @brief Falls when a measured value stops falling. That is after more than `patience` values in a
 * row that were not below the lowest by a share of `threshold`. */
class Plateau {
 public:
  struct Options {
    double factor = 0.1;
    int64_t patience = 10;
    double threshold = 1e-4;
    double lowest = 0;  ///< factor that is never passed
  };
  /** @throws Error for options that cannot be. */
  explicit Plateau(const Options& options);
  Plateau() : Plateau(Options()) {}

  /** @brief Takes the next value, such as a held-out loss, and returns the factor from here on. NaN
   *  counts as no improvement. */
  double update(double value);
  double factor() const { return state_.factor; }

  /** @brief What it knows of the values so far: to be saved with a checkpoint. */
  struct State {
    double factor = 1;
    double best = std::numeric_limits<double>::infinity();
    int64_t bad = 0;  ///< values in a row without improvement
  };
  const State& state() const { return state_; }
  /** @brief Goes on from values that were saved. */
  void restore(const State& state) { state_ = state; }

 private:
  Options options_;
  State state_;
};

}  // namespace bs::optim
