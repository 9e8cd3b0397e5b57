#pragma once
/** @file Activation functions as layers, for Sequential; see kernels/activation.h,
 *  kernels/rectifier.h and kernels/softmax.h. */
#include <bs/autograd/activation.h>
#include <bs/autograd/rectifier.h>
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

struct SoftmaxOptions {
  int axis = -1;
};

class Softmax : public Module {
 public:
  using Options = SoftmaxOptions;
  explicit Softmax(const Options& options = {}) : axis_(options.axis) {}
  Variable forward(const Variable& x) const { return softmax(x, axis_); }

 private:
  int axis_;
};

class LogSoftmax : public Module {
 public:
  using Options = SoftmaxOptions;
  explicit LogSoftmax(const Options& options = {}) : axis_(options.axis) {}
  Variable forward(const Variable& x) const { return log_softmax(x, axis_); }

 private:
  int axis_;
};

struct LeakyReLUOptions {
  double slope = 0.01;
};

class LeakyReLU : public Module {
 public:
  using Options = LeakyReLUOptions;
  explicit LeakyReLU(const Options& options = {}) : slope_(options.slope) {}
  Variable forward(const Variable& x) const { return leaky_relu(x, slope_); }

 private:
  double slope_;
};

struct ELUOptions {
  double alpha = 1;
};

class ELU : public Module {
 public:
  using Options = ELUOptions;
  explicit ELU(const Options& options = {}) : alpha_(options.alpha) {}
  Variable forward(const Variable& x) const { return elu(x, alpha_); }

 private:
  double alpha_;
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
