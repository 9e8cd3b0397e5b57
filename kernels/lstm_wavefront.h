#pragma once
/** @file How layers of an LSTM over each other run side by side, each a piece of the steps behind
 * the one below. */
#include <bs/kernels/binary.h>
#include <bs/kernels/lstm.h>

#include <vector>

namespace bs::detail {

/** @brief Steps [from, to) of a layer. */
struct LSTMPiece {
  size_t layer;
  int64_t from, to;

  Tensor of(const Tensor& x, int64_t more = 0) const {
    return x.defined() ? x.slice(0, from, to + more) : x;
  }
  LSTMSteps of(const LSTMSteps& p) const {
    LSTMSteps q = p;
    q.gates = of(p.gates);
    q.h = of(p.h, 1);
    q.c = of(p.c, 1);
    q.outputs = of(p.outputs);
    if (p.lengths.defined() && from > 0) q.lengths = sub(p.lengths, from);
    return q;
  }
  LSTMBackwardSteps of(const LSTMBackwardSteps& p) const {
    LSTMBackwardSteps q = p;
    q.forward = of(p.forward);
    q.dy = of(p.dy);
    q.dcells = of(p.dcells);
    q.dgates = of(p.dgates);
    q.dhidden = of(p.dhidden);
    return q;
  }
};

/** @brief What runs side by side, turn after turn: in turn d, piece d - l of each layer l. Only
 *  pieces of as many steps run together; backward takes the turns from the last.
 *  @param[in] first of the first layer
 *  @param[in] chunk steps of a piece; 0: as many as pay on the device
 *  @throws Error where chunk is negative */
std::vector<std::vector<LSTMPiece>> wavefront(std::span<const LSTMDirection> layers,
                                              const LSTMSteps& first, bool backward, int64_t chunk);

}  // namespace bs::detail
