#pragma once
/** @file What LSTMs keep on a GPU from call to call. */
#include <bs/lib/device.h>

namespace bs::cuda {

/** @brief Frees the memory that graphs of the calling thread's recent shapes work on. They take it
 *  again when such a shape comes. */
void release_lstm_graphs(Device device);

}  // namespace bs::cuda
