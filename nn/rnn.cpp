#include <bs/nn/rnn.h>

namespace bs::nn {

RNN::RNN(const Options& o)
    : Recurrent({"rnn", 1, o.input, o.hidden, o.layers, o.bias, o.batch_first, o.bidirectional,
                 o.dropout, o.generator, o.dtype, o.device}),
      options_(o) {}

std::vector<RecurrentStates> RNN::run(const Variable& x,
                                      std::span<const RecurrentDirectionVariables> directions,
                                      const Tensor& lengths) const {
  return rnn(x, directions, options_.nonlinearity, lengths);
}

RNNCell::RNNCell(const Options& o)
    : RecurrentCell({"rnn_cell", 1, o.input, o.hidden, o.bias, o.dtype, o.device}),
      nonlinearity_(o.nonlinearity) {}

std::vector<RecurrentStates> RNNCell::run(const Variable& x,
                                          const RecurrentDirectionVariables& step) const {
  return rnn(x, {&step, 1}, nonlinearity_);
}

}  // namespace bs::nn
