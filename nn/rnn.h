#pragma once
/** @file The plain recurrent layer, and its cell. kernels/rnn.h has the equations. */
#include <bs/autograd/rnn.h>
#include <bs/nn/recurrent.h>

namespace bs::nn {

struct RNNOptions {
  int64_t input = 0;   ///< features of x
  int64_t hidden = 0;  ///< cells of a layer and direction
  int layers = 1;
  Nonlinearity nonlinearity = Nonlinearity::tanh;
  bool bias = true;
  bool batch_first = false;        ///< x and y are [batch, steps, ...], else [steps, batch, ...]
  bool bidirectional = false;      ///< features of y: both directions', forward first
  double dropout = 0;              ///< of the inputs of all layers but the first
  Generator* generator = nullptr;  ///< drawn from; null: the default generator
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Plain recurrent layers over whole sequences. */
class RNN : public Recurrent {
 public:
  using Options = RNNOptions;
  explicit RNN(const Options& options);
  const Options& options() const { return options_; }

 private:
  std::vector<RecurrentStates> run(const Variable& x,
                                   std::span<const RecurrentDirectionVariables> directions,
                                   const Tensor& lengths) const override;
  Options options_;
};

struct RNNCellOptions {
  int64_t input = 0;
  int64_t hidden = 0;
  bool bias = true;
  Nonlinearity nonlinearity = Nonlinearity::tanh;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief One step of a plain recurrent layer. */
class RNNCell : public RecurrentCell {
 public:
  using Options = RNNCellOptions;
  explicit RNNCell(const Options& options);

 private:
  std::vector<RecurrentStates> run(const Variable& x,
                                   const RecurrentDirectionVariables& step) const override;
  Nonlinearity nonlinearity_;
};

}  // namespace bs::nn
