#pragma once
/** @file Activation functions as layers, for Sequential; see kernels/activation.h. */
#include <bs/autograd/activation.h>
#include <bs/autograd/softmax.h>
#include <bs/nn/module.h>

namespace bs::nn {

struct ReLU : Module {
  Variable forward(const Variable& x) const { return relu(x); }
};

struct SiLU : Module {
  Variable forward(const Variable& x) const { return silu(x); }
};

struct Tanh : Module {
  Variable forward(const Variable& x) const { return tanh(x); }
};

struct Sigmoid : Module {
  Variable forward(const Variable& x) const { return sigmoid(x); }
};

/** @brief Softmax over the last axis. */
struct Softmax : Module {
  Variable forward(const Variable& x) const { return softmax(x); }
};

struct GELUOptions {
  Gelu form = Gelu::erf;
};

class GELU : public Module {
 public:
  using Options = GELUOptions;
  explicit GELU(const Options& options = {}) : form_(options.form) {}
  Variable forward(const Variable& x) const { return gelu(x, form_); }

 private:
  Gelu form_;
};

}  // namespace bs::nn
