#pragma once
/** @file The picture of a run. */
#include <bs/examples/sparse_transformer/history.h>

namespace bs::example {

/** @brief Bits a byte over steps, as SVG: the training loss and its moving average, the held-out
 *  loss, and the bigram model's as a line to get below. */
std::string loss_chart(const History& history);

}  // namespace bs::example
