#include <bs/nn/gru.h>

namespace bs::nn {

GRU::GRU(const Options& o)
    : Recurrent({"gru", 3, o.input, o.hidden, o.layers, o.bias, o.batch_first, o.bidirectional,
                 o.dropout, o.generator, o.dtype, o.device}),
      options_(o) {}

std::vector<RecurrentStates> GRU::run(const Variable& x,
                                      std::span<const RecurrentDirectionVariables> directions,
                                      const Tensor& lengths) const {
  return gru(x, directions, lengths);
}

GRUCell::GRUCell(const Options& o)
    : RecurrentCell({"gru_cell", 3, o.input, o.hidden, o.bias, o.dtype, o.device}) {}

std::vector<RecurrentStates> GRUCell::run(const Variable& x,
                                          const RecurrentDirectionVariables& step) const {
  return gru(x, {&step, 1});
}

}  // namespace bs::nn
