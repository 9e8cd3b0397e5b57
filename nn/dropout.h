#pragma once
/** @file Dropout as a layer. */
#include <bs/kernels/activation.h>
#include <bs/lib/random.h>
#include <bs/nn/module.h>

namespace bs::nn {

struct DropoutOptions {
  double p = 0.5;                  ///< probability of a zero
  Generator* generator = nullptr;  ///< drawn from; null: the default generator
};

/** @brief Zeroes elements with probability p and scales the others by 1 / (1 - p) while training;
 *  otherwise it is x itself. */
class Dropout : public Module {
 public:
  using Options = DropoutOptions;
  /** @throws Error for p outside [0, 1]. */
  explicit Dropout(const Options& options);
  Variable forward(const Variable& x) const;
  /** @brief Of f(x), in one pass on a GPU; see activation_dropout. */
  Variable forward(const Variable& x, Activation f) const;

 private:
  double p_;
  Generator& generator_;
};

/** @brief The same of whole channels of x [N, C, ...]. */
class Dropout2d : public Module {
 public:
  using Options = DropoutOptions;
  /** @throws Error for p outside [0, 1]. */
  explicit Dropout2d(const Options& options);
  Variable forward(const Variable& x) const;

 private:
  double p_;
  Generator& generator_;
};

}  // namespace bs::nn
