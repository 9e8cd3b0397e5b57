#pragma once
/** @file Parameters averaged over the training: smoother than the last ones, and often better. */
#include <bs/nn/optim/optimizer.h>

namespace bs::optim {

/** @brief An exponential moving average of each parameter of a module (Polyak, Juditsky, 1992). */
class Ema {
 public:
  /** @brief Starts from the parameters as they are: make it after moving, converting and loading.
   *  @throws Error for a decay outside [0, 1). */
  Ema(const nn::Module& module, double decay);
  /** @brief Takes the parameters in after step number `step`, from 1. The decay is at most
   *  (1 + step) / (10 + step), so that a young average does not remember the start. A cuda::Graph
   *  that records it repeats this number. */
  void update(int64_t step) const;
  /** @brief The same after the last step of `optimizer`, which a cuda::Graph asks for its number at
   *  each replay. */
  void update(const Optimizer& optimizer) const;
  /** @brief The averages, named as the parameters: to be saved, and restored by copying in. */
  std::vector<NamedTensor> state() const;

 private:
  friend class AverageScope;
  struct Entry {
    nn::NamedVariable parameter;
    Tensor average;
  };
  void take_in(double decay, const Tensor& mix) const;

  std::vector<Entry> entries_;
  double decay_;
};

/** @brief While it lives, the module has the averages as its parameters. Where there is no memory
 *  for it, the constructor throws and the parameters are what they were. */
class AverageScope {
 public:
  explicit AverageScope(const Ema& ema);
  ~AverageScope();
  AverageScope(const AverageScope&) = delete;
  AverageScope& operator=(const AverageScope&) = delete;

 private:
  void restore() const;
  const Ema& ema_;
  std::vector<Tensor> kept_;
};

}  // namespace bs::optim
