#include <bs/nn/dropout.h>

#include <bs/autograd/dropout.h>

namespace bs::nn {

Dropout::Dropout(const Options& options)
    : p_(options.p), generator_(options.generator ? *options.generator : default_generator()) {
  BS_CHECK(p_ >= 0 && p_ <= 1, "dropout: probability {} is not in [0, 1]", p_);
}

Variable Dropout::forward(const Variable& x) const {
  return training() ? dropout(x, p_, generator_) : x;
}

Variable Dropout::forward(const Variable& x, Activation f) const {
  return activation_dropout(x, f, training() ? p_ : 0, generator_);
}

Dropout2d::Dropout2d(const Options& options)
    : p_(options.p), generator_(options.generator ? *options.generator : default_generator()) {
  BS_CHECK(p_ >= 0 && p_ <= 1, "dropout2d: probability {} is not in [0, 1]", p_);
}

Variable Dropout2d::forward(const Variable& x) const {
  return training() ? dropout2d(x, p_, generator_) : x;
}

}  // namespace bs::nn
