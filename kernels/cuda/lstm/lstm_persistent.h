#pragma once
/** @file All steps of an LSTM in one kernel; kernels/cuda/device/lstm/lstm_persistent.cuh has the
 *  design, kernels/cuda/lstm/lstm_config.h what it can take. */
#include <bs/kernels/cuda/lstm/lstm_config.h>
#include <bs/kernels/lstm.h>

#include <span>

namespace bs::cuda {

/** @brief Runs directions for which lstm_algorithm says `persistent`. */
void lstm_persistent(std::span<const LSTMSteps> directions, const LstmDivision& division,
                     Stream stream);
void lstm_persistent_backward(std::span<const LSTMBackwardSteps> directions,
                              const LstmDivision& division, Stream stream);

}  // namespace bs::cuda
